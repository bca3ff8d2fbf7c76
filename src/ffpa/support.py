"""Which compiled kernel runs a problem, or why none does: the one predicate that dispatch uses."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

from ffpa.errors import (
    UnsupportedDeviceError,
    UnsupportedError,
    UnsupportedFeatureError,
    UnsupportedValueError,
)
from ffpa.extension import Instance, kernels
from ffpa.inputs import DeviceLimits, check_layout, device_limits, prepare, problem_of
from ffpa.problem import Problem

__all__ = ["DeviceLimits", "Problem", "Support", "find", "resolve", "supports"]

# kernel="auto" takes the first of these that has an instance for the problem and the device.
AUTO_ORDER = ("split_d-sm90", "split_d-sm80")


@dataclass(frozen=True)
class Support:
    """True with the kernel that runs; false with the reason that `ffpa.attention` raises."""

    instance: Instance | None = None
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.instance is not None

    @property
    def kernel(self) -> str | None:
        """The id of the kernel, such as "split_d-sm80"."""
        return self.instance["id"] if self.instance else None


def supports(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    acc: str = "f32",
    kernel: str = "auto",
    causal_align: str = "upper_left",
    return_lse: bool = False,
) -> Support:
    """Whether `ffpa.attention` with these arguments runs, and on which kernel; never launches.

    `return_lse` is taken for the sake of equal signatures: every kernel can return it.
    """
    try:
        query, key, value = prepare(query, key, value)
        _, instance = resolve(
            query, key, value, is_causal, scale, enable_gqa, acc, kernel, causal_align
        )
    except UnsupportedError as error:
        return Support(reason=str(error))
    return Support(instance)


def find(
    problem: Problem,
    limits: DeviceLimits,
    kernel: str = "auto",
    variant: str = "",
    instances: Iterable[Instance] | None = None,
) -> Support:
    """The instance that runs `problem` on such a device, or the reason why there is none.

    `kernel` is "auto", an id or a full instance name; `instances` defaults to this build's.
    """
    try:
        problem.check()
        built = tuple(kernels() if instances is None else instances)
        instance = _select(built, *_key(problem), limits, kernel, variant)
    except UnsupportedError as error:
        return Support(reason=str(error))
    return Support(instance)


def resolve(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    acc: str,
    kernel: str,
    causal_align: str,
) -> tuple[Problem, Instance]:
    """The problem that the tensors pose and the instance that runs it; raises UnsupportedError."""
    problem = problem_of(query, key, value, is_causal, scale, enable_gqa, acc, causal_align)
    check_layout(query, key, value)
    return problem, _select_built(*_key(problem), device_limits(query.device.index), kernel)


def _key(problem: Problem) -> tuple[str, str, int, int, int, int]:
    """All that the choice of a kernel depends on: no instance is bound to other sizes."""
    heads = problem.batch * problem.nheads_q
    return problem.dtype, problem.acc, problem.headdim, problem.seqlen_k, heads, problem.seqlen_q


@lru_cache(maxsize=4096)
def _select_built(
    dtype: str,
    acc: str,
    headdim: int,
    seqlen_k: int,
    heads: int,
    seqlen_q: int,
    limits: DeviceLimits,
    kernel: str,
) -> Instance:
    built = tuple(kernels())
    return _select(built, dtype, acc, headdim, seqlen_k, heads, seqlen_q, limits, kernel, "")


def _select(
    instances: tuple[Instance, ...],
    dtype: str,
    acc: str,
    headdim: int,
    seqlen_k: int,
    heads: int,
    seqlen_q: int,
    limits: DeviceLimits,
    kernel: str,
    variant: str,
) -> Instance:
    who = "this build" if kernel == "auto" else kernel
    named = _named(instances, kernel, variant)

    typed = [i for i in named if (i["dtype"], i["acc"]) == (dtype, acc)]
    if not typed:
        offers = sorted({f"{i['dtype']} with acc={i['acc']}" for i in named})
        raise UnsupportedFeatureError(
            f"{who} has no kernel for {dtype} with acc={acc}: choose from {', '.join(offers)}",
        )
    wide = [i for i in typed if i["headdim"] >= headdim]
    if not wide:
        raise UnsupportedFeatureError(
            f"headdim {headdim} is above {max(i['headdim'] for i in typed)}, the largest that "
            f"{who} was compiled for with {dtype} and acc={acc}: choose another kernel",
        )
    native = [i for i in wide if any(_runs_on(arch, limits.capability) for arch in i["archs"])]
    if not native:
        archs = sorted({f"sm_{arch}" for i in wide for arch in i["archs"]})
        raise UnsupportedDeviceError(
            f"{who} was compiled for {', '.join(archs)} and the device is {limits.arch}: "
            f"choose another kernel, or rebuild with FFPA_CUDA_ARCHS",
        )
    lasting = [i for i in native if not 0 < i["max_seqlen_k"] < seqlen_k]
    if not lasting:
        raise UnsupportedFeatureError(
            f"seqlen_k {seqlen_k} is above {max(i['max_seqlen_k'] for i in native)}, beyond which "
            f"the sums of {who} with acc={acc} stall: use acc=f32 or another kernel",
        )
    fitting = [i for i in lasting if i["smem_bytes"] <= limits.smem_bytes]
    if not fitting:
        raise UnsupportedDeviceError(
            f"headdim {headdim} takes {min(i['smem_bytes'] for i in lasting)} bytes of shared "
            f"memory in {who} and the device has {limits.smem_bytes}: choose another kernel",
        )
    rank = {name: position for position, name in enumerate(AUTO_ORDER)}

    def order(i: Instance) -> tuple[int, int, bool, bool]:
        return rank.get(i["id"], 0), i["headdim"], i["variant"] != variant, i["narrow"]

    first = min(fitting, key=order)
    if limits.multiprocessors == 0:
        return first

    def busiest(i: Instance) -> int:
        """Rows of the multiprocessor with the most, CTAs being served one by one."""
        ctas = heads * -(-seqlen_q // i["Br"])
        return -(-ctas // limits.multiprocessors) * i["Br"]

    # CTAs of fewer rows read keys and values more often: they have to save a quarter of the rows.
    narrow = [i for i in fitting if i["narrow"] and order(i)[:2] == order(first)[:2]]
    saving = [i for i in narrow if 4 * busiest(i) <= 3 * busiest(first)]
    return min(saving, key=busiest, default=first)


def _named(instances: tuple[Instance, ...], kernel: str, variant: str) -> list[Instance]:
    """What `kernel` and `variant` may mean: an automatic choice, an id, or one instance."""
    exact = [i for i in instances if i["name"] == kernel]
    if exact:
        return exact
    ids = AUTO_ORDER if kernel == "auto" else (kernel,)
    family = [i for i in instances if i["id"] in ids]
    if not family:
        known = dict.fromkeys(i["id"] for i in instances)
        raise UnsupportedValueError(
            f"kernel={kernel!r} is not in this build: choose from {', '.join(known)}"
        )
    pool = [
        i
        for i in family
        if i["variant"] == variant or (not variant and (i["fallback"] or i["narrow"]))
    ]
    if not pool:
        known = dict.fromkeys(i["variant"] for i in family)
        raise UnsupportedValueError(f"variant={variant!r} of {kernel} is not one of {list(known)}")
    return pool


def _runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Machine code for X.Y runs on X.Z with Z >= Y; "X.Ya" makes no such promise."""
    major, minor = int(arch.rstrip("a")[:-1]), int(arch.rstrip("a")[-1])
    if arch.endswith("a"):
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]

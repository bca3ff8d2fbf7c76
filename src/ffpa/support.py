"""Which compiled kernel runs a problem, or why none does: the one predicate that dispatch uses."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from torch import Tensor

from ffpa.errors import (
    UnsupportedDeviceError,
    UnsupportedError,
    UnsupportedFeatureError,
    UnsupportedValueError,
)
from ffpa.extension import Instance, kernels, resident_clusters
from ffpa.inputs import DeviceLimits, check_layout, device_limits, prepare, problem_of
from ffpa.problem import Problem
from ffpa.split_keys import KERNEL as SPLIT_KV
from ffpa.split_keys import splits_pay

__all__ = ["DeviceLimits", "Problem", "Support", "find", "resolve", "supports"]

# kernel="auto" takes the first of these that has an instance for the problem and the device; but
# SPLIT_KV last, unless there are few queries: so many in a head, or so many rows in all, with which
# the other kernels leave most of the chip idle. An instance that splits the keys comes instead of
# any of them where `splits_pay`. Measured on an H200 (csrc/NOTES.md).
AUTO_ORDER = (SPLIT_KV, "split_d-sm90", "split_d-sm80")
FEW_QUERIES = 16
FEW_ROWS = 512

# How the ids of kernels begin that take no values narrower than keys: one more bound of columns
# would take registers that they do not have.
ONE_HEADDIM = "ladder-"


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
    attn_mask: Tensor | None = None,
    return_lse: bool = False,
) -> Support:
    """Whether `ffpa.attention` with these arguments runs, and on which kernel; never launches.

    `return_lse` is taken for the sake of equal signatures: every kernel can return it.
    """
    try:
        query, key, value, attn_mask = prepare(query, key, value, attn_mask)
        _, instance = resolve(
            query, key, value, is_causal, scale, enable_gqa, acc, kernel, causal_align, attn_mask
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
        fitting = _fitting(
            built, problem.dtype, problem.acc, problem.headdim, problem.masked, limits, kernel,
            variant,
        )  # fmt: skip
        instance = _choose(fitting, problem, limits, kernel)
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
    attn_mask: Tensor | None,
) -> tuple[Problem, Instance]:
    """The problem that the tensors pose and the instance that runs it; raises UnsupportedError."""
    problem = problem_of(
        query, key, value, is_causal, scale, enable_gqa, acc, causal_align, attn_mask
    )
    check_layout(query, key, value)
    limits = build_limits(query.device.index)
    fitting = _fitting_built(
        problem.dtype, problem.acc, problem.headdim, problem.masked, limits, kernel
    )
    return problem, _choose(fitting, problem, limits, kernel)


@cache
def build_limits(index: int) -> DeviceLimits:
    """The limits of CUDA device `index`, with what this build's clusters find there."""
    limits = device_limits(index)
    arch = "{}{}a".format(*limits.capability)
    built = [i["name"] for i in kernels() if arch in i["archs"]]
    without = frozenset(name for name in built if resident_clusters(name, index) == 0)
    return replace(limits, unschedulable=without)


@lru_cache(maxsize=4096)
def _fitting_built(
    dtype: str, acc: str, headdim: int, masked: bool, limits: DeviceLimits, kernel: str
) -> tuple[Instance, ...]:
    return _fitting(tuple(kernels()), dtype, acc, headdim, masked, limits, kernel, "")


def _fitting(
    instances: tuple[Instance, ...],
    dtype: str,
    acc: str,
    headdim: int,
    masked: bool,
    limits: DeviceLimits,
    kernel: str,
    variant: str,
) -> tuple[Instance, ...]:
    """What the device can run of these types and this head dimension, best first."""
    who = "this build" if kernel == "auto" else kernel
    named = _named(instances, kernel, variant)

    typed = [i for i in named if (i["dtype"], i["acc"]) == (dtype, acc)]
    if not typed:
        offers = sorted({f"{i['dtype']} with acc={i['acc']}" for i in named})
        raise UnsupportedFeatureError(
            f"{who} has no kernel for {dtype} with acc={acc}: choose from {', '.join(offers)}",
        )
    with_mask = ""
    if masked:
        with_mask = " with an attn_mask"
        typed = [i for i in typed if i["masks"]]
        if not typed:
            raise UnsupportedFeatureError(
                f"attn_mask is given and {who} takes none with {dtype} and acc={acc}: use acc=f32 "
                f"and kernel='auto', or is_causal",
            )
    wide = [i for i in typed if i["headdim"] >= headdim]
    if not wide:
        raise UnsupportedFeatureError(
            f"headdim {headdim} is above {max(i['headdim'] for i in typed)}, the largest that "
            f"{who} was compiled for with {dtype} and acc={acc}{with_mask}: choose another kernel",
        )
    native = [i for i in wide if any(runs_on(arch, limits.capability) for arch in i["archs"])]
    if not native:
        archs = sorted({f"sm_{arch}" for i in wide for arch in i["archs"]})
        raise UnsupportedDeviceError(
            f"{who} was compiled for {', '.join(archs)} and the device is {limits.arch}: "
            f"choose another kernel, or rebuild with FFPA_CUDA_ARCHS",
        )
    native = [i for i in native if i["name"] not in limits.unschedulable]
    if not native:
        raise UnsupportedDeviceError(
            f"headdim {headdim} takes clusters of CTAs in {who} and the device, perhaps a part of "
            f"a GPU, can schedule none of them: choose another kernel, or the whole GPU",
        )
    fitting = [i for i in native if i["smem_bytes"] <= limits.smem_bytes]
    if not fitting:
        other = "use acc=f32" if acc != "f32" else "leave the call to ffpa.sdpa and so to torch"
        raise UnsupportedDeviceError(
            f"headdim {headdim}{with_mask} takes {min(i['smem_bytes'] for i in native)} bytes of "
            f"shared memory in {who} and the device has {limits.smem_bytes}: "
            f"{other if kernel == 'auto' else 'choose another kernel'}",
        )
    rank = {name: position for position, name in enumerate(AUTO_ORDER)}

    def order(i: Instance) -> tuple[int, int, bool, bool]:
        return rank.get(i["id"], 0), i["headdim"], i["variant"] != variant, i["narrow"]

    return tuple(sorted(fitting, key=order))


def _choose(
    fitting: tuple[Instance, ...], problem: Problem, limits: DeviceLimits, kernel: str
) -> Instance:
    """The first that serves the widths and lengths of the problem, or its narrow variant."""
    who = "this build" if kernel == "auto" else kernel
    if problem.headdim_v not in (None, problem.headdim):
        fitting = tuple(i for i in fitting if not i["id"].startswith(ONE_HEADDIM))
        if not fitting:
            raise UnsupportedFeatureError(
                f"value has headdim {problem.headdim_v}, query and key {problem.headdim}, and "
                f"{who} takes one for all: choose another kernel, or pad value with zeros",
            )
    if kernel == "auto" and not few_queries(problem.batch * problem.nheads_q, problem.seqlen_q):
        fitting = tuple(sorted(fitting, key=lambda i: i["id"] == SPLIT_KV))

    def stands_in(instance: Instance) -> bool:
        for_masks_alone = instance["masks"] and instance["variant"] and not problem.masked
        return bool(for_masks_alone or instance["splits"]) and instance["name"] != kernel

    for_all = [i for i in fitting if not stands_in(i)] or fitting  # of a build of few kernels
    usable = [i for i in for_all if not 0 < i["max_seqlen_k"] < problem.seqlen_k]
    if not usable:
        raise UnsupportedFeatureError(
            f"seqlen_k {problem.seqlen_k} is above {max(i['max_seqlen_k'] for i in fitting)}, "
            f"beyond which the sums of {who} with acc={problem.acc} stall: use acc=f32 or another "
            f"kernel",
        )
    first = _first_or_narrow(usable, problem, limits.multiprocessors)
    splitting = next((i for i in fitting if i["splits"]), first)
    if splitting is first or not splits_pay(splitting, first, problem, limits.multiprocessors):
        return first
    return splitting


def _first_or_narrow(usable: list[Instance], problem: Problem, multiprocessors: int) -> Instance:
    """The first instance, or a narrow variant of it where that keeps more multiprocessors busy.

    CTAs of fewer rows read keys and values more often, so the multiprocessor with the most rows has
    to be left with a quarter less of them.
    """
    first = usable[0]
    if multiprocessors == 0:
        return first

    def most_rows(i: Instance) -> int:
        ctas = problem.batch * problem.nheads_q * -(-problem.seqlen_q // i["Br"])
        return -(-ctas // multiprocessors) * i["Br"]

    narrow = [
        i
        for i in usable
        if i["narrow"] and (i["id"], i["headdim"]) == (first["id"], first["headdim"])
    ]
    saving = [i for i in narrow if 4 * most_rows(i) <= 3 * most_rows(first)]
    return min(saving, key=lambda i: (most_rows(i), -i["Br"]), default=first)


def few_queries(heads: int, seqlen_q: int) -> bool:
    """Whether kernel="auto" begins with SPLIT_KV; `heads` are the query heads of all batches."""
    return seqlen_q <= FEW_QUERIES or heads * seqlen_q <= FEW_ROWS


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
        if i["variant"] == variant
        or (not variant and (i["fallback"] or i["narrow"] or i["masks"] or i["splits"]))
    ]
    if not pool:
        known = dict.fromkeys(i["variant"] for i in family)
        raise UnsupportedValueError(f"variant={variant!r} of {kernel} is not one of {list(known)}")
    return pool


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Machine code for X.Y runs on X.Z with Z >= Y; "X.Ya" makes no such promise."""
    major, minor = int(arch.rstrip("a")[:-1]), int(arch.rstrip("a")[-1])
    if arch.endswith("a"):
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]

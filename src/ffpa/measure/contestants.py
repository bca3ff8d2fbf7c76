"""Who takes turns on a shape, and how each is made ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial

from torch import Tensor

from ffpa.attention import attention
from ffpa.baselines import BASELINES
from ffpa.errors import UnsupportedError
from ffpa.record import AccName
from ffpa.settings import Settings, SettingsError, accumulators, chosen
from ffpa.split_keys import KERNEL as SPLIT_KV
from ffpa.support import AUTO_ORDER, DeviceLimits, Problem, few_queries, find

from .ceiling import (
    CEILING,
    COPY,
    SQUARE,
    SQUARE_FLOPS,
    copy_launch,
    matmul_launch,
    product_bytes,
    square_launch,
)
from .inputs import Inputs
from .shape import Shape
from .timer import Launch

LADDER_PREFIX = "ladder-"
ORACLE_KERNEL = "naive"  # right but slow: compared with only when asked for


@dataclass(frozen=True)
class Contestant:
    """A kernel with an accumulator, a baseline, or a ceiling."""

    kernel: str
    acc: AccName | None = None
    variant: str = ""

    @property
    def label(self) -> str:
        """Unique within a point."""
        return " ".join(part for part in (self.kernel, self.variant, self.acc) if part)

    @property
    def ours(self) -> bool:
        """Whether it is a kernel of this project."""
        return self.acc is not None


@dataclass(frozen=True)
class Ready:
    """A contestant that can be launched."""

    launch: Launch
    backend: str
    flops: int
    output: Callable[[object], Tensor] | None  # None: the result is not an attention output


def contestants_of(settings: Settings, compiled: Iterable[str]) -> list[Contestant]:
    """The contestants that the settings name. `compiled` are the kernel ids of this build.

    `shipped` stands for the compiled kernels that kernel="auto" may take for so many queries,
    `ladder` for the steps of the ladder, `all` for all; "id/variant" names a variant.
    """
    groups = {"all": list(dict.fromkeys(compiled))}
    few = few_queries(settings.b * settings.h, settings.n)
    groups["shipped"] = [
        name for name in groups["all"] if name in AUTO_ORDER and (few or name != SPLIT_KV)
    ]
    groups["ladder"] = [name for name in groups["all"] if name.startswith(LADDER_PREFIX)]
    names = [member for name in chosen(settings.kernels) for member in groups.get(name, [name])]
    found = []
    for name in dict.fromkeys(names):
        kernel, _, variant = name.partition("/")
        accs = accumulators(settings)
        if kernel == ORACLE_KERNEL and "f32" in accs:
            accs = ["f32"]  # its launches take seconds, and which accumulator is not its subject
        found += [Contestant(kernel, acc, variant) for acc in accs]
    for name in chosen(settings.baselines):
        if name not in BASELINES:
            raise SettingsError(f"baselines.{name} is unknown: give one of {', '.join(BASELINES)}")
        found.append(Contestant(name))
    if settings.measure.ceiling:
        found += [Contestant(CEILING), *([Contestant(COPY)] if few else [])]
    if settings.measure.square:
        found.append(Contestant(SQUARE))
    return found


def memory_of(contestant: Contestant, inputs: Inputs) -> int:
    """Bytes that a contestant needs beyond inputs and output."""
    if contestant.kernel == COPY:
        return inputs.key.element_size() * inputs.key.numel()
    baseline = BASELINES.get(contestant.kernel)
    return baseline.memory(inputs) if baseline else product_bytes(contestant.kernel, inputs.shape)


def make_ready(contestant: Contestant, inputs: Inputs, limits: DeviceLimits) -> Ready:
    """Do what is not to be timed; raises UnsupportedError, or what the preparation raises."""
    if contestant.kernel == CEILING:
        launch, flops = matmul_launch(inputs)
        return Ready(launch, "torch.matmul", flops, None)
    if contestant.kernel == SQUARE:
        return Ready(square_launch(inputs), "torch.mm", SQUARE_FLOPS, None)
    if contestant.kernel == COPY:
        return Ready(copy_launch(inputs), "torch copy of key", inputs.shape.flops, None)
    if (baseline := BASELINES.get(contestant.kernel)) is not None:
        if reason := baseline.refuse(inputs):
            raise UnsupportedError(reason)
        prepared = baseline.prepare(inputs)
        return Ready(prepared.launch, prepared.backend, inputs.shape.flops, _as_tensor)
    return _ready_kernel(contestant, inputs, limits)


def problem_of(shape: Shape, acc: AccName) -> Problem:
    """A shape and an accumulator, as dispatch knows them."""
    return Problem(**asdict(shape), acc=acc)


def _ready_kernel(contestant: Contestant, inputs: Inputs, limits: DeviceLimits) -> Ready:
    shape = inputs.shape
    problem = problem_of(shape, contestant.acc or "f32")
    support = find(problem, limits, contestant.kernel, contestant.variant)
    if support.instance is None:
        raise UnsupportedError(support.reason or "no reason given")
    name = support.instance["name"]
    launch = partial(
        attention,
        inputs.query,
        inputs.key,
        inputs.value,
        is_causal=shape.causal,
        enable_gqa=shape.nheads_q != shape.nheads_kv,
        acc=problem.acc,
        kernel=name,
    )
    return Ready(launch, name, shape.flops, _as_tensor)


def _as_tensor(result: object) -> Tensor:
    if not isinstance(result, Tensor):
        raise TypeError(f"a launch returned {type(result).__name__}, not a tensor")
    return result

"""The claims of experiments/claims.yaml: their fields, checked as they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ffpa.record import AccName, DTypeName
from ffpa.record.store import REPOSITORY

from .names import EFFICIENT, Contestant

CLAIMS_FILE = REPOSITORY / "experiments" / "claims.yaml"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Who(_Part):
    """A contestant."""

    kernel: str
    acc: AccName | None = None
    variant: str = ""

    @property
    def contestant(self) -> Contestant:
        return Contestant(self.kernel, self.acc, self.variant)


class Sizes(_Part):
    """Which shapes; an empty list stands for any."""

    headdim: list[int] = Field(default_factory=list)
    seqlen_q: list[int] = Field(default_factory=list)
    nheads_q: list[int] = Field(default_factory=list)
    nheads_kv: list[int] = Field(default_factory=list)
    input_scale: list[float] = Field(default_factory=list)
    value_mean: list[float] = Field(default_factory=list)
    dtype: DTypeName | Literal["better"] | None = None
    causal: bool | None = None

    def __str__(self) -> str:
        given = self.model_dump(exclude_defaults=True)
        return ", ".join(
            f"{name}={listed(value) if isinstance(value, list) else value}"
            for name, value in given.items()
        )


class Select(Who, Sizes):
    """Which points a claim is about.

    With head dimensions given, one problem size is looked at: that of which most were measured.
    dtype "better": of fp16 and bf16, which never share a point, the faster at each D.
    """

    dtype: DTypeName | Literal["better"] | None = "fp16"
    causal: bool | None = False


class Metric(_Part):
    """One number, or one per point, made from the selected points.

    every: the quantity at each point. peak: its largest value. peak_at: the D of that. trend:
    Kendall's tau of the quantity with D (-1: falls throughout, 1: rises throughout). flat: the
    lowest value over the largest. step: value at D = `at` over that at the D before it. steps: the
    same at every D but the first. share_of_peak: value at D = `at` over the largest.
    These take no quantity: failures counts the points without a right result, wrong those with a
    wrong one, changing those whose second launch gave other bits.
    """

    kind: Literal[
        "every", "peak", "peak_at", "trend", "flat", "step", "steps", "share_of_peak",
        "failures", "wrong", "changing",
    ]  # fmt: skip
    # conflicts, warps, dram: of the recorded profile, the share of shared memory's wavefronts that
    # bank conflicts made necessary, warps on a multiprocessor, share of memory's bandwidth.
    of: (
        Literal["tflops", "speedup", "err_rel", "registers", "conflicts", "warps", "dram"] | None
    ) = None
    # Whose time, error or registers are divided by. Several: at each point the fastest. "peers":
    # the fastest of the baselines that ran. "model": the error that the CPU model allows.
    over: Who | list[Who] | Literal["peers", "model"] | None = None
    # tflops: divided by those at these sizes, or of this contestant at the same ones.
    than: Sizes | Who | None = None
    floors: dict[int, float] = Field(default_factory=dict)  # tflops: divided by these, by D
    at: int | None = None  # one of the selected D, and for a step not the first

    @property
    def counts(self) -> bool:
        """Whether it is a number of points."""
        return self.kind in ("failures", "wrong", "changing")

    @property
    def by_place(self) -> bool:
        """Whether it is a number per point."""
        return self.kind in ("every", "steps")

    @property
    def opponent(self) -> Contestant:
        """Whom a speed-up is over."""
        return self.over.contestant if isinstance(self.over, Who) else EFFICIENT

    @property
    def changed(self) -> dict[str, object]:
        """What is another in the selection that a rate is divided by."""
        if isinstance(self.than, Who):
            return self.than.model_dump()
        return self.than.model_dump(exclude_defaults=True) if self.than else {}

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.of is None) != self.counts:
            raise ValueError(
                f"metric {self.kind}: `of` is needed by all kinds but those that count"
            )
        if (self.at is not None) != (self.kind in ("step", "share_of_peak")):
            raise ValueError(f"metric {self.kind}: `at` belongs to step and share_of_peak")
        if self.over and self.of not in ("speedup", "err_rel", "registers"):
            raise ValueError(
                f"metric {self.kind}: `over` belongs to speedup, err_rel and registers"
            )
        if (self.over == "peers" or isinstance(self.over, list)) and self.of != "speedup":
            raise ValueError(f"metric {self.kind}: `over` several belongs to speedup")
        if self.over == []:
            raise ValueError(f"metric {self.kind}: `over` is an empty list")
        if self.over == "model" and (self.of, self.kind) != ("err_rel", "every"):
            raise ValueError(f"metric {self.kind}: `over: model` belongs to every err_rel")
        for name in ("than", "floors"):
            if getattr(self, name) and (self.of, self.kind) != ("tflops", "every"):
                raise ValueError(f"metric {self.kind}: `{name}` belongs to every tflops")
        if self.than and (self.floors or self.changed.get("dtype") == "better"):
            raise ValueError(f"metric {self.kind}: give `than` one dtype and no floors")
        return self


class Expect(_Part):
    """Bounds, each of which may be left out."""

    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _some_bound(self) -> Self:
        if self.low is None and self.high is None:
            raise ValueError("expect needs low or high")
        return self

    def __str__(self) -> str:
        if self.low is None:
            return f"at most {self.high:g}"
        if self.high is None:
            return f"at least {self.low:g}"
        return span(self.low, self.high)


class Claim(_Part):
    """One sentence that recorded rows can bear out or not."""

    id: str
    statement: str
    source: Literal["paper", "ours"]
    where: str  # figure or table that shows it
    experiment: str
    select: Select
    metric: Metric
    expect: Expect
    tolerance: float = Field(default=0.0, ge=0, lt=1)  # relative, widens both bounds
    hardware: list[str] = Field(default_factory=list)  # architectures, "sm_90"; none: any GPU
    gate: bool  # whether "does not hold" makes the command fail
    authors: str | None = None  # what the claim's authors measured, in their words
    setting: str | None = None  # what they measured it on
    differs: str | None = None  # what is different here, where that may change the verdict
    minutes: float = Field(gt=0)
    command: str

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest number allowed, tolerance included."""
        low = -math.inf if self.expect.low is None else self.expect.low
        high = math.inf if self.expect.high is None else self.expect.high
        return low - self.tolerance * abs(low), high + self.tolerance * abs(high)

    @property
    def picks_dtype(self) -> bool:
        """Whether the faster dtype counts."""
        return self.select.dtype == "better"

    @property
    def expected(self) -> str:
        """The bounds in words."""
        slack = f" (± {self.tolerance:.0%})" if self.tolerance else ""
        return f"{self.expect}{slack}"

    @model_validator(mode="after")
    def _at_is_selected(self) -> Self:
        dims = sorted(self.select.headdim)
        needing = ("trend", "flat", "peak_at", "steps")
        if not dims and (self.metric.kind in needing or self.picks_dtype):
            raise ValueError(f"metric {self.metric.kind} needs select.headdim")
        if self.metric.floors and sorted(self.metric.floors) != dims:
            raise ValueError(f"metric.floors is for D = {listed(self.metric.floors)}: give each D")
        known = dims[1:] if self.metric.kind == "step" else dims
        if self.metric.at is not None and self.metric.at not in known:
            raise ValueError(f"metric.at {self.metric.at} is none of {listed(known)}")
        return self


def load_claims(path: Path = CLAIMS_FILE) -> list[Claim]:
    """Read claims; raises ValueError naming the entry and field at fault."""
    claims = []
    for number, entry in enumerate(yaml.safe_load(path.read_text()), start=1):
        name = entry.get("id", number) if isinstance(entry, dict) else number
        try:
            claims.append(Claim.model_validate(entry))
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"])) or "entry"
            raise ValueError(f"{path.name}, claim {name}: {where}: {fault['msg']}") from error
    ids = [claim.id for claim in claims]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise ValueError(f"{path.name}: claim {twice[0]} is there twice: rename one")
    return claims


def span(least: float, most: float) -> str:
    """A range of numbers, or the number when there is but one."""
    first, last = f"{least:.4g}", f"{most:.4g}"
    return first if first == last else f"{first} to {last}"


def listed(values: Iterable[object]) -> str:
    """Values in a row."""
    return ", ".join(map(str, values))

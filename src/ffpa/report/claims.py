"""The claims of experiments/claims.yaml: their fields, checked as they are read."""

from __future__ import annotations

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


class Select(Who):
    """Which points a claim is about."""

    headdim: list[int] = Field(min_length=1)
    dtype: DTypeName = "fp16"
    causal: bool = False


class Metric(_Part):
    """One number, or one per D, made from the selected points.

    every: the quantity at each D. peak: its largest value. peak_at: the D of that. trend: Kendall's
    tau of the quantity with D (-1: falls throughout, 1: rises throughout). step: value at D = `at`
    over the value at the D before it. share_of_peak: value at D = `at` over the largest.
    failures: how many of the points did not give a right result (takes no quantity).
    """

    kind: Literal["every", "peak", "peak_at", "trend", "step", "share_of_peak", "failures"]
    of: Literal["tflops", "speedup", "err_rel"] | None = None
    over: Who | None = None  # speedup: whose time, err_rel: whose error is divided by
    at: int | None = None  # one of the selected D, and for a step not the first

    @property
    def opponent(self) -> Contestant:
        """Whom a speed-up is over."""
        return self.over.contestant if self.over else EFFICIENT

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.of is None) != (self.kind == "failures"):
            raise ValueError(f"metric {self.kind}: `of` is needed by all kinds but failures")
        if (self.at is not None) != (self.kind in ("step", "share_of_peak")):
            raise ValueError(f"metric {self.kind}: `at` belongs to step and share_of_peak")
        if self.over and self.of not in ("speedup", "err_rel"):
            raise ValueError(f"metric {self.kind}: `over` belongs to speedup and err_rel")
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
    judge: Literal["value", "interval"] = "value"  # interval: its unfavourable end has to hold too
    hardware: list[str] = Field(default_factory=list)  # architectures, "sm_90"; none: any GPU
    gate: bool  # whether "does not hold" makes the command fail
    authors: str | None = None  # what the claim's authors measured, in their words
    minutes: float = Field(gt=0)
    command: str

    @property
    def expected(self) -> str:
        """The bounds in words."""
        slack = f" (± {self.tolerance:.0%})" if self.tolerance else ""
        return f"{self.expect}{slack}"

    @model_validator(mode="after")
    def _at_is_selected(self) -> Self:
        dims = sorted(self.select.headdim)
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


def listed(dims: Iterable[int]) -> str:
    """Head dimensions in a row."""
    return ", ".join(map(str, dims))

"""One recorded result: a contestant (kernel or baseline) at one shape."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION: Literal[1] = 1

Status = Literal[
    "ok", "unsupported", "oom", "compile_error", "wrong_result", "timeout", "throttled"
]
DTypeName = Literal["fp16", "bf16"]
AccName = Literal["f16", "f32", "qk32_pv16", "qk16_pv32", "f16f32"]

# Only these may carry times: a wrong result keeps its time, shown as such, and a throttled row
# keeps the rounds that ran at full clocks.
TIMED_STATUSES = frozenset({"ok", "wrong_result", "throttled"})

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def median_of(samples: Sequence[float]) -> float:
    """Median, rounded as rows store it (to the nanosecond when samples are in ms)."""
    return round(statistics.median(samples), 6)


def iqr_of(samples: Sequence[float]) -> float:
    """Distance between the quartiles (linear interpolation); 0 for a single sample."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return round(high - low, 6)


def inputs_in_short(input_scale: float, value_mean: float) -> str:
    """What was done to standard normal inputs: "inputs × 16", "inputs × 0.001 values + 1"."""
    return f"inputs × {input_scale:g}" + (f" values + {value_mean:g}" if value_mean else "")


class Row(BaseModel):
    """One line of a results file. Sizes are elements, times milliseconds, rates TFLOP/s."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    schema_version: Literal[1] = Field(default=SCHEMA_VERSION, alias="schema")
    run_id: str
    experiment: str
    tag: str = ""
    process: Count  # operating-system process id: rows of one id are not independent runs
    seed: Count

    kernel: str
    acc: AccName | None = None  # None: a baseline or a ceiling, whose accumulator is its own
    variant: str = ""
    backend: str  # what truly ran

    dtype: DTypeName
    batch: Positive
    nheads_q: Positive
    nheads_kv: Positive
    seqlen_q: Positive
    seqlen_k: Positive
    headdim: Positive
    causal: bool
    input_scale: Annotated[float, Field(gt=0)] = 1.0  # standard deviation of query and key
    value_mean: float = 0.0  # of value, whose standard deviation is 1

    status: Status
    reason: str | None = None
    samples_ms: list[float] = Field(default_factory=list)  # one per kept round, in round order
    median_ms: float | None = None
    iqr_ms: float | None = None
    tflops: float | None = None
    err_rel: float | None = None  # root-mean-square error over the root mean square of the oracle
    err_max: float | None = None  # largest absolute error
    repeats: bool | None = None  # whether a second launch gave the same bits; None: not compared
    rounds: Count = 0
    discarded: Count = 0
    discard_reason: str | None = None
    stop: str | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    power_capped: int | None = None  # samples during which the power limit held the clocks
    # None in these two: recorded before they were counted.
    requeued: Count | None = None  # launches repeated, as the host was late to queue them
    late: Count | None = None  # samples that hold the host's own time

    env_hash: Hash
    source_hash: Hash

    @model_validator(mode="after")
    def _status_agrees_with_numbers(self) -> Self:
        if self.status != "ok" and not self.reason:
            raise ValueError(f"a row of status {self.status} needs a reason")
        if self.samples_ms and self.status not in TIMED_STATUSES:
            raise ValueError(f"a row of status {self.status} cannot hold times")
        if self.rounds != len(self.samples_ms):
            raise ValueError(
                f"rounds is {self.rounds}, but there are {len(self.samples_ms)} samples"
            )
        timed = (self.median_ms, self.iqr_ms, self.tflops)
        if not self.samples_ms:
            if any(value is not None for value in timed):
                raise ValueError("median_ms, iqr_ms and tflops need samples_ms")
        elif any(value is None for value in timed):
            raise ValueError("samples_ms needs median_ms, iqr_ms and tflops")
        elif min(self.samples_ms) <= 0:
            raise ValueError("samples_ms must be above zero")
        elif self.median_ms != median_of(self.samples_ms) or self.iqr_ms != iqr_of(self.samples_ms):
            raise ValueError("median_ms or iqr_ms is not that of samples_ms")
        return self

    @property
    def shape(self) -> tuple[int, int, int, int, int, int, bool, str, float, float]:
        """What was computed: rows of equal shape may be compared."""
        return (
            self.batch,
            self.nheads_q,
            self.nheads_kv,
            self.seqlen_q,
            self.seqlen_k,
            self.headdim,
            self.causal,
            self.dtype,
            self.input_scale,
            self.value_mean,
        )

    def to_line(self) -> str:
        """The row as one line of JSON, keys in the order of this class."""
        return self.model_dump_json(by_alias=True)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read one line; raises pydantic.ValidationError."""
        return cls.model_validate_json(line)

"""A point: one contestant at one shape, whatever number of runs it was measured in."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ffpa.record import Row, inputs_in_short

from . import statistics
from .names import Contestant
from .statistics import Estimate, Runs

Shape = tuple[int, int, int, int, int, int, bool, str, float, float]


@dataclass(frozen=True)
class Point:
    """One contestant at one shape: the rows of its newest environment and sources, pooled."""

    contestant: Contestant
    shape: Shape
    rows: tuple[Row, ...]
    stale: bool

    @property
    def newest(self) -> Row:
        return self.rows[-1]

    @functools.cached_property
    def deciding(self) -> Row:
        """The row whose status stands for the point.

        One wrong result condemns the point, whatever other runs gave. Otherwise a run that
        worked outweighs one that did not (a retry after an out-of-memory).
        """
        wrong = [row for row in self.rows if row.status == "wrong_result"]
        timed = [row for row in self.rows if row.samples_ms]
        return (wrong or timed or self.rows)[-1]

    @property
    def counts(self) -> bool:
        """Whether the times may be compared: measured, and right."""
        return self.deciding.status in ("ok", "throttled") and bool(self.deciding.samples_ms)

    @property
    def repeats(self) -> bool | None:
        """Whether second launches gave the same bits in all runs; None when none was compared."""
        told = [row.repeats for row in self.rows if row.repeats is not None]
        return all(told) if told else None

    @property
    def size(self) -> str:
        """The problem in short: "B=1 H=32/4 N=8192 fp16 causal", without D.

        Inputs that are not standard normal are told too: "inputs × 16".
        """
        row = self.newest
        heads, lengths = f"{row.nheads_q}", f"{row.seqlen_q}"
        if row.nheads_kv != row.nheads_q:
            heads += f"/{row.nheads_kv}"
        if row.seqlen_k != row.seqlen_q:
            lengths += f"x{row.seqlen_k}"
        causal = " causal" if row.causal else ""
        spread = (row.input_scale, row.value_mean)
        inputs = "" if spread == (1, 0) else f" {inputs_in_short(*spread)}"
        return f"B={row.batch} H={heads} N={lengths} {row.dtype}{causal}{inputs}"

    @property
    def timed(self) -> list[list[float]]:
        """Milliseconds of every round, a list per row that has times."""
        return [row.samples_ms for row in self.rows if row.samples_ms]

    @functools.cached_property
    def time(self) -> Estimate | None:
        """Milliseconds with interval, a wrong result's too; None when nothing was timed."""
        return statistics.median(self.timed) if self.timed else None

    @property
    def rate(self) -> Estimate | None:
        """TFLOP/s with interval; None when the point does not count."""
        row = self.deciding
        if not self.counts or not self.time or row.tflops is None or row.median_ms is None:
            return None
        return self.time.inverse(row.tflops * row.median_ms)

    @property
    def rates(self) -> Runs:
        """TFLOP/s of every round, by process; empty when the point does not count."""
        row = self.deciding
        if not self.counts or row.tflops is None or row.median_ms is None:
            return {}
        work = row.tflops * row.median_ms
        return {process_of(row): work / np.array(row.samples_ms) for row in self.rows if row.rounds}


def process_of(row: Row) -> tuple[str, int]:
    """What tells the process that measured a row."""
    return row.run_id, row.process

"""Medians, ratios and their bootstrap intervals, resampled by process first, then by round.

Samples of one process are not independent runs, so an interval over several processes has to
cover how processes differ. Everything is seeded: the same rows give the same bounds.

What is compared decides which ratio is sound:

- two contestants at one shape, which took turns: `round_ratios`, the ratio of each round;
- one contestant at two shapes, in the same processes: `shared_ratio`, the ratio of each process;
- two that share no process: `unpaired_ratio`, the ratio of two medians.

Resampling levels from the outer to the inner one, as here processes and then rounds, is Davison and
Hinkley, Bootstrap Methods and their Application (1997), section 3.8, and, for ratios of benchmarks,
Kalibera and Jones, Rigorous Benchmarking in Reasonable Time (ISMM 2013).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 2000
SEED = 576

Samples = Sequence[float] | NDArray[np.float64]
Runs = Mapping[Any, Samples]  # by process


class Estimate(NamedTuple):
    """A median with its interval, and what it rests on."""

    value: float
    low: float
    high: float
    samples: int
    processes: int

    def inverse(self, numerator: float = 1.0) -> Estimate:
        """numerator / self: a time turned into a rate."""
        value, low, high = (numerator / bound for bound in (self.value, self.high, self.low))
        return self._replace(value=value, low=low, high=high)


def median(groups: Sequence[Samples]) -> Estimate:
    """Median over processes of the median of each; `groups` holds one process's samples each."""
    return _median(tuple(tuple(group) for group in groups))


def round_ratios(first: Samples, second: Samples) -> NDArray[np.float64]:
    """first / second, round by round, over the rounds of one process that both were in."""
    # A slow contestant sits out later rounds: index i is round i for both up to the shorter one.
    common = min(len(first), len(second))
    ratios: NDArray[np.float64] = np.divide(first[:common], second[:common], dtype=float)
    return ratios


def shared_ratio(first: Runs, second: Runs) -> Estimate | None:
    """Ratio of two medians whose rounds do not correspond, process by process.

    With a_p and b_p the rounds of both in process p: the median over p of
    median(a_p) / median(b_p). What a process as a whole meets, above all how hot the chip is, is in
    both and cancels. Each resample draws processes with replacement, numerator and denominator
    together, and within each the rounds of the two apart. None when no process measured both;
    what a process measured of one alone is left out.
    """
    shared = [(first[process], second[process]) for process in first if process in second]
    if not shared:
        return None
    rng = np.random.default_rng(SEED)
    drawn = [_medians_of_one_process(a, rng) / _medians_of_one_process(b, rng) for a, b in shared]
    value = float(np.median([np.median(a) / np.median(b) for a, b in shared]))
    return _estimate(value, _over_processes(np.stack(drawn), rng), [a for a, _ in shared])


def unpaired_ratio(first: Sequence[Samples], second: Sequence[Samples]) -> Estimate:
    """Ratio of two medians from different runs, whose rounds do not correspond."""
    # Different seeds: equal files must not resample in step and so hide their own spread.
    spread = _resampled_medians(first, SEED) / _resampled_medians(second, SEED + 1)
    return _estimate(_centre(first) / _centre(second), spread, [*first, *second])


@functools.cache  # a report asks for each median some times, in files that it loads anew
def _median(groups: tuple[tuple[float, ...], ...]) -> Estimate:
    return _estimate(_centre(groups), _resampled_medians(groups, SEED), groups)


def _centre(groups: Sequence[Samples]) -> float:
    return float(np.median([np.median(group) for group in groups]))


def _resampled_medians(groups: Sequence[Samples], seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return _over_processes(np.stack([_medians_of_one_process(g, rng) for g in groups]), rng)


def _over_processes(drawn: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Medians over processes drawn with replacement; `drawn` has a line of resamples for each."""
    chosen = rng.integers(len(drawn), size=drawn.shape)
    resampled: NDArray[np.float64] = np.median(np.take_along_axis(drawn, chosen, axis=0), axis=0)
    return resampled


def _medians_of_one_process(group: Samples, rng: np.random.Generator) -> NDArray[np.float64]:
    if len(group) < 2:
        return np.full(RESAMPLES, float(group[0]))
    result = stats.bootstrap(
        (np.asarray(group, dtype=float),),
        np.median,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=rng,
    )
    distribution: NDArray[np.float64] = result.bootstrap_distribution
    return distribution


def _estimate(value: float, spread: NDArray[np.float64], groups: Sequence[Samples]) -> Estimate:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(spread, [tail, 100 - tail])
    count = sum(len(group) for group in groups)
    return Estimate(value, float(low), float(high), count, len(groups))

"""Medians and their bootstrap intervals, resampled by process first, then by round.

Samples of one process are not independent runs, so an interval over several processes has to
cover how processes differ. Everything is seeded: the same rows give the same bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 2000
SEED = 576

Samples = Sequence[float] | NDArray[np.float64]


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
    return _estimate(_centre(groups), _resampled_medians(groups, SEED), groups)


def paired_ratio(pairs: Sequence[tuple[Samples, Samples]]) -> Estimate:
    """Median of the per-round ratios first / second, over the rounds that both were in."""
    return median([_ratios(first, second) for first, second in pairs])


def unpaired_ratio(first: Sequence[Samples], second: Sequence[Samples]) -> Estimate:
    """Ratio of two medians from different runs, whose rounds do not correspond."""
    # Different seeds: equal files must not resample in step and so hide their own spread.
    spread = _resampled_medians(first, SEED) / _resampled_medians(second, SEED + 1)
    return _estimate(_centre(first) / _centre(second), spread, [*first, *second])


def _ratios(first: Samples, second: Samples) -> NDArray[np.float64]:
    # A slow contestant sits out later rounds: index i is round i for both up to the shorter one.
    common = min(len(first), len(second))
    ratios: NDArray[np.float64] = np.divide(first[:common], second[:common], dtype=float)
    return ratios


def _centre(groups: Sequence[Samples]) -> float:
    return float(np.median([np.median(group) for group in groups]))


def _resampled_medians(groups: Sequence[Samples], seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    medians = np.stack([_medians_of_one_process(group, rng) for group in groups])
    chosen = rng.integers(len(groups), size=medians.shape)
    resampled: NDArray[np.float64] = np.median(np.take_along_axis(medians, chosen, axis=0), axis=0)
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

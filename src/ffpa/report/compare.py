"""Two result files, point by point: did the second get faster, slower, stay, or is it unclear?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from ffpa.record import load_rows

from . import statistics
from .points import Point
from .results import Results
from .statistics import Estimate

MARGIN = 0.01  # differences below 1 % are no news: runs on another day differ by more

Change = Literal["faster", "slower", "same", "unclear"]
Points = dict[tuple[object, ...], Point]


@dataclass(frozen=True)
class Comparison:
    """One contestant at one shape in both files."""

    first: Point
    second: Point
    ratio: Estimate  # time in the first file over time in the second: above 1 is faster
    change: Change


def compare_files(
    first: Path, second: Path, margin: float = MARGIN
) -> tuple[list[Comparison], list[str]]:
    """Comparisons of the points that count in both files, and a line on each of the others.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a line of a file is no valid row.
    """
    return compare_points(_points(first), _points(second), margin)


def compare_results(
    first: Results, second: Results, margin: float = MARGIN
) -> tuple[list[Comparison], list[str]]:
    """As compare_files, for all experiments that both folders hold."""
    shared = set(first.experiments) & set(second.experiments)
    return compare_points(_points_of(first, shared), _points_of(second, shared), margin)


def compare_points(
    ours: Points, theirs: Points, margin: float = MARGIN
) -> tuple[list[Comparison], list[str]]:
    """Comparisons of the points that count on both sides, and a line on each of the others."""
    comparisons, left_out = [], []
    for key in dict.fromkeys([*ours, *theirs]):
        before, after = ours.get(key), theirs.get(key)
        if before and after and before.counts and after.counts:
            comparisons.append(_compare(before, after, margin))
        else:
            point = before or after
            assert point is not None
            states = f"{_state(before)} in the first file, {_state(after)} in the second"
            left_out.append(f"{_name(point)}: {states}")
    return comparisons, left_out


def verdict(ratio: Estimate, margin: float = MARGIN) -> Change:
    """Faster or slower when the whole interval lies beyond the margin, same when within it."""
    if ratio.low > 1 + margin:
        return "faster"
    if ratio.high < 1 / (1 + margin):
        return "slower"
    if ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin:
        return "same"
    return "unclear"


def summary(comparisons: list[Comparison]) -> str:
    """How often each verdict came."""
    counts = Counter(comparison.change for comparison in comparisons)
    order: tuple[Change, ...] = ("faster", "slower", "same", "unclear")
    return ", ".join(f"{counts[change]} {change}" for change in order)


def comparison_table(comparisons: list[Comparison]) -> pd.DataFrame:
    """One line per comparison, as text."""
    return pd.DataFrame(
        {
            "point": [_name(entry.first) for entry in comparisons],
            "first ms": [_milliseconds(entry.first) for entry in comparisons],
            "second ms": [_milliseconds(entry.second) for entry in comparisons],
            "first / second": [f"{entry.ratio.value:.3f}" for entry in comparisons],
            "95 % interval": [
                f"{entry.ratio.low:.3f} to {entry.ratio.high:.3f}" for entry in comparisons
            ],
            "second is": [entry.change for entry in comparisons],
        }
    )


def _compare(before: Point, after: Point, margin: float) -> Comparison:
    ratio = statistics.unpaired_ratio(before.timed, after.timed)
    if before.timed == after.timed:  # the very same rounds, so that nothing can have changed
        ratio = ratio._replace(low=ratio.value, high=ratio.value)
    return Comparison(before, after, ratio, verdict(ratio, margin))


def _points(path: Path) -> Points:
    results = Results(path.parent, tuple(load_rows(path)), {}, source_hash="")
    return _points_of(results, results.experiments)


def _points_of(results: Results, experiments: Iterable[str]) -> Points:
    return {
        (experiment, point.contestant, point.shape): point
        for experiment in experiments
        for point in results.points(experiment)
    }


def _state(point: Point | None) -> str:
    return point.deciding.status if point else "absent"


def _name(point: Point) -> str:
    row = point.newest
    return f"{row.experiment}: {point.contestant.label}, D={row.headdim} {point.size}"


def _milliseconds(point: Point) -> str:
    return f"{point.time.value:.4g}" if point.time else ""

"""Results on stdout, progress on stderr where that is a terminal."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ffpa.record import Row

from .identity import point_of
from .plan import Planned

PLAIN_WIDTH = 120  # of a table that goes to a file or a pipe
REFERENCE = "sdpa-efficient"
WORDS = ("contestant", "acc", "status")


def console() -> Console:
    """Standard output; NO_COLOR is honoured by rich itself."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def speedup(row: Row, reference: Row | None) -> float | None:
    """Median of the per-round ratios of times, over the rounds that both have."""
    if reference is None or not row.samples_ms or not reference.samples_ms:
        return None
    pairs = zip(reference.samples_ms, row.samples_ms, strict=False)
    return statistics.median(theirs / ours for theirs, ours in pairs)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def results_table(title: str, rows: Sequence[Row]) -> Table:
    """One line per contestant of a point; columns of which nothing is known are left out."""
    reference = next((row for row in rows if row.kernel == REFERENCE), None)
    columns: dict[str, list[str]] = {
        "contestant": [
            f"{row.kernel}/{row.variant}" if row.variant else row.kernel for row in rows
        ],
        "acc": [row.acc or "" for row in rows],
        "ms": [_number(row.median_ms, ".3f") for row in rows],
        "IQR": [_number(row.iqr_ms, ".3f") for row in rows],
        "TFLOP/s": [_number(row.tflops, ".1f") for row in rows],
        "vs EA": [_number(speedup(row, reference), ".2f") for row in rows],
        "rounds": [str(row.rounds or "") for row in rows],
        "late": [str(row.late or "") for row in rows],
        "error": [_number(row.err_rel, ".1e") for row in rows],
        "status": [row.status + (f": {row.reason}" if row.reason else "") for row in rows],
    }
    table = Table(title=title, title_justify="left")
    known = {name: cells for name, cells in columns.items() if any(cells)}
    for name in known:
        table.add_column(name, justify="left" if name in WORDS else "right")
    for cells in zip(*known.values(), strict=True):
        table.add_row(*cells)
    return table


def plan_table(plan: Sequence[Planned]) -> Table:
    """One line per point of a sweep."""
    table = Table(title="plan", title_justify="left")
    table.add_column("point")
    table.add_column("contestants")
    table.add_column("minutes", justify="right")
    table.add_column("GPU GiB", justify="right")
    for settings, contestants, expected, recorded in plan:
        minutes = "recorded" if recorded else f"{expected.seconds / 60:.1f}"
        table.add_row(
            point_of(settings),
            ", ".join(one.label for one in contestants),
            minutes,
            f"{expected.gpu_bytes / 2**30:.1f}",
        )
    left = sum(expected.seconds for _, _, expected, recorded in plan if not recorded)
    table.caption = f"{len(plan)} points, about {left / 60:.1f} minutes"
    return table


def overview_table(plans: Mapping[str, Sequence[Planned]]) -> Table:
    """One line per experiment: what it is expected to take."""
    table = Table(title="experiments", title_justify="left", min_width=64)
    table.add_column("experiment")
    for column in ("points", "minutes", "GPU GiB"):
        table.add_column(column, justify="right")
    total = 0.0
    for name, plan in plans.items():
        todo = [point.forecast for point in plan if not point.recorded]
        seconds = sum(point.seconds for point in todo)
        total += seconds
        memory = max((point.gpu_bytes for point in todo), default=0)
        table.add_row(name, str(len(todo)), f"{seconds / 60:.1f}", f"{memory / 2**30:.1f}")
    table.caption = f"about {total / 60:.0f} minutes, by recorded times or else as on an H200"
    return table


class Bar:
    """Progress of a sweep."""

    def __init__(self, progress: Progress, points: int) -> None:
        self._progress = progress
        self._sweep = progress.add_task("", total=points, step="")
        self._point = ""

    def start(self, point: str) -> None:
        """A point begins."""
        self._point = point
        self.step("")

    def step(self, text: str) -> None:
        """What the current point is doing."""
        self._progress.update(self._sweep, step=f"{self._point}: {text}")

    def done(self) -> None:
        """The point is over."""
        self._progress.advance(self._sweep)


@contextmanager
def progress_bar(points: int) -> Iterator[Bar]:
    """A bar on stderr, silent unless that is a terminal."""
    columns = (
        TextColumn("{task.completed}/{task.total}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[step]}"),
    )
    terminal = Console(stderr=True)
    with Progress(
        *columns,
        console=terminal,
        disable=not sys.stderr.isatty(),
        # Tables go above the bar where both share a terminal, but never out of a file or pipe.
        redirect_stdout=sys.stdout.isatty(),
    ) as progress:
        yield Bar(progress, points)

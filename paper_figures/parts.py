"""Pieces of several figures: curves with intervals, gap marks, notes, and room for them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffpa.report.names import Contestant, meanings
from ffpa.report.results import LATE_SHARE, NoRowsError, Results, contestants_in, only
from ffpa.report.tables import stale_notes

from . import style

# How a point that cannot be drawn is marked.
GAP_MARKS = {
    "unsupported": ("×", "cannot run"),
    "oom": ("M", "out of memory"),
    "compile_error": ("C", "does not compile"),
    "timeout": ("T", "timed out"),
    "wrong_result": ("W", "wrong result"),
    "throttled": ("H", "slowed down by heat"),
    "ok": ("–", "nothing to compare with in the same run"),
}
# Heights in inches of a line of text around the panels.
LEGEND_LINE, NOTE_LINE, AXIS_TEXT = 0.125, 0.1, 0.4
NOTE_CHARACTERS = 78  # what fits into a line of a note


def curve(
    axes: Axes,
    contestant: Contestant,
    points: pd.DataFrame,
    x: str,
    quantity: str,
    label: str | None = None,
    places: Iterable[float] | None = None,
) -> None:
    """Draw `quantity` with its interval over column `x`.

    At those of `places` where there is no point the line breaks, as it does at one without a value.
    """
    drawn = points.dropna(subset=[quantity])
    if drawn.empty:
        return
    look = style.appearance(contestant)
    line = points.set_index(x)[quantity].astype(float)
    if places is not None:
        line = line.reindex(list(places))
    # A marker on the axis is drawn whole.
    axes.plot(line.index, line, label=label or contestant.label, clip_on=False, **look)
    hot = drawn[drawn["status"] == "throttled"]
    axes.plot(
        hot[x],
        hot[quantity].astype(float),
        **look | {"linestyle": "", "markerfacecolor": "white", "zorder": 3},
    )
    if f"{quantity}_low" in drawn:
        interval(axes, contestant, drawn, x, quantity)


def interval(
    axes: Axes, contestant: Contestant, points: pd.DataFrame, x: str, quantity: str
) -> None:
    """Error bars of points that have a value."""
    below = points[quantity] - points[f"{quantity}_low"]
    above = points[f"{quantity}_high"] - points[quantity]
    axes.errorbar(
        points[x],
        points[quantity].astype(float),
        yerr=[below.astype(float), above.astype(float)],
        fmt="none",
        ecolor=style.appearance(contestant)["color"],
        elinewidth=0.7,
        capsize=1.6,
        capthick=0.6,
    )


def gap_marks(axes: Axes, panel: pd.DataFrame, x: str, quantity: str) -> None:
    """At the top of the panel, a mark of the contestant's colour for each point without a value."""
    for place, points in panel.groupby(x):
        gaps = points[points[quantity].isna()]
        for line, (_, point) in enumerate(gaps.iterrows()):
            axes.text(
                float(str(place)),
                0.99 - 0.075 * line,
                GAP_MARKS[point["status"]][0],
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="top",
                fontsize=style.SMALL,
                color=style.appearance(point["contestant"])["color"],
            )


def running(panel: pd.DataFrame, quantity: str) -> tuple[pd.DataFrame, list[str]]:
    """The panel without those that have a value nowhere, and their labels."""
    idle = [one for one in contestants_in(panel) if only(panel, one)[quantity].isna().all()]
    kept = panel[[contestant not in idle for contestant in panel["contestant"]]]
    return kept, [contestant.label for contestant in idle]


def notes_of(results: Results, panel: pd.DataFrame, quantity: str, size: str) -> list[str]:
    """Small print under a figure: device and shape, marks, staleness."""
    timed = f"; median and 95 % interval, {_processes(panel)}" if f"{quantity}_low" in panel else ""
    notes = [f"{results.device}; {size}{timed}"]
    kernel_notes = {
        note for contestant in contestants_in(panel) if (note := results.note(contestant))
    }
    notes += [f"† {note}" for note in sorted(kernel_notes)]
    notes += meanings(contestants_in(panel))
    gaps = set(panel["status"][panel[quantity].isna()])
    if statuses := [status for status in GAP_MARKS if status in gaps]:
        notes.append("; ".join(" ".join(GAP_MARKS[status]) for status in statuses))
    if (panel["status"][panel[quantity].notna()] == "throttled").any():
        notes.append("hollow: many rounds discarded, slowed down by heat")
    late = contestants_in(panel[panel["late"] > LATE_SHARE * panel["samples"]])
    if late:
        notes.append(f"with the host's own time: {', '.join(one.label for one in late)}")
    return notes + stale_notes(panel)


def _processes(panel: pd.DataFrame) -> str:
    """How many independent runs the points rest on."""
    counts = panel["processes"][panel["counts"].astype(bool)]
    least, most = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    number = str(most) if least == most else f"{least} to {most}"
    return f"{number} process" + ("" if number == "1" else "es")


def marked(results: Results, contestant: Contestant) -> str:
    """The label, with a dagger where a note belongs to it."""
    return contestant.label + ("†" if results.note(contestant) else "")


def lines_of(notes: Sequence[str]) -> list[str]:
    """Notes as they are broken under a figure."""
    return [line for note in notes for line in textwrap.wrap(note, NOTE_CHARACTERS)]


def height(panels: float, legend_entries: int, notes: Sequence[str], columns: int = 2) -> float:
    """Of a figure whose panels take `panels` inches."""
    legend = LEGEND_LINE * -(-legend_entries // columns)
    return panels + AXIS_TEXT + legend + NOTE_LINE * len(lines_of(notes))


def finish(figure: Figure, notes: Sequence[str], axes: Axes, columns: int = 2) -> None:
    """Legend above, from what `axes` shows; notes below."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=columns)
    text = "\n".join(lines_of(notes))
    figure.supxlabel(text, fontsize=style.SMALL, color=style.GREY)


def write_data(panel: pd.DataFrame, columns: Sequence[str], path: Path) -> None:
    """The plotted numbers: what to compare where the pixels of another FreeType differ."""
    table = panel[list(columns)]
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def some(panel: pd.DataFrame, what: str) -> pd.DataFrame:
    """The panel; NoRowsError when it is empty, with what should have been recorded."""
    if panel.empty:
        raise NoRowsError(f"no {what} recorded")
    return panel

"""What the three figures over the head dimension share: panel, intervals, gaps, notes."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffpa.report.names import EFFICIENT, Contestant
from ffpa.report.results import Results, contestants_in, only
from ffpa.report.tables import HEADDIMS, headdim_panel, stale_labels

from . import style

# How a point that cannot be drawn is marked in the strip under the axes.
GAP_MARKS = {
    "unsupported": ("×", "cannot run"),
    "oom": ("M", "out of memory"),
    "compile_error": ("C", "does not compile"),
    "timeout": ("T", "timed out"),
    "wrong_result": ("W", "wrong result"),
    "throttled": ("H", "slowed down by heat"),
    "ok": ("–", "nothing to compare with in the same run"),
}
# Heights in inches: the panel, and what each line of text around it adds.
PANEL, STRIP_LINE, LEGEND_LINE, NOTE_LINE, AXIS_TEXT = 1.55, 0.1, 0.125, 0.1, 0.65
NOTE_CHARACTERS = 78  # what fits into a line of a note


def build(
    results: Results,
    frame: pd.DataFrame,
    folder: Path,
    *,
    name: str,
    quantity: str,
    unit: str,
    contestants: Callable[[Contestant], bool],
    reference: float | None = None,
) -> str:
    """Draw `quantity` over the head dimension, save it with its data, return the caption.

    `quantity` names the frame's column; its _low and _high columns are the interval.
    `reference` draws a level line (1 for a speed-up).
    """
    panel = headdim_panel(frame, contestants)
    notes = _notes(results, panel, quantity)
    with style.styled():
        figure = _draw(results, panel, quantity, unit, reference, notes)
        style.save(figure, folder, name)
    _write_data(panel, quantity, folder / f"{name}.csv")
    return "; ".join(notes)


def _draw(
    results: Results,
    panel: pd.DataFrame,
    quantity: str,
    unit: str,
    reference: float | None,
    notes: Sequence[str],
) -> Figure:
    incomplete = [
        contestant
        for contestant in contestants_in(panel)
        if only(panel, contestant)[quantity].isna().any()
    ]
    strip = STRIP_LINE * len(incomplete)
    legend_lines = (len(contestants_in(panel)) + 1) // 2
    note_lines = [line for note in notes for line in textwrap.wrap(note, NOTE_CHARACTERS)]
    text = LEGEND_LINE * legend_lines + NOTE_LINE * len(note_lines) + AXIS_TEXT
    figure = style.new_figure(PANEL + strip + text)
    ratios = [PANEL, strip] if incomplete else [PANEL]
    all_axes = figure.subplots(
        len(ratios), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": ratios}
    )[:, 0]

    main: Axes = all_axes[0]
    for contestant in contestants_in(panel):
        _plot(main, contestant, only(panel, contestant), quantity, _marked(results, contestant))
    if reference is not None:
        main.axhline(reference, color="black", linewidth=0.6, linestyle=":")
    main.set_ylabel(unit)
    main.set_ylim(bottom=0)
    main.tick_params(axis="x", length=0)
    if incomplete:
        _strip(all_axes[1], panel, incomplete, quantity)
    bottom: Axes = all_axes[-1]
    dims = sorted(panel["headdim"].unique())
    bottom.set_xticks(dims, [str(dim) for dim in dims], rotation=45)
    bottom.set_xlabel("head dimension D")
    figure.legend(loc="outside upper center", ncols=2)
    figure.supxlabel("\n".join(note_lines), fontsize=style.SMALL, color=style.GREY)
    return figure


def _plot(
    axes: Axes, contestant: Contestant, points: pd.DataFrame, quantity: str, label: str
) -> None:
    drawn = points.dropna(subset=[quantity])
    if drawn.empty:
        return
    look = style.appearance(contestant)
    # A point that was not even tried has to break the line as one without a value does.
    line = points.set_index("headdim")[quantity].astype(float).reindex(HEADDIMS)
    axes.plot(line.index, line, label=label, **look)
    hot = drawn[drawn["status"] == "throttled"]
    axes.plot(
        hot["headdim"],
        hot[quantity].astype(float),
        **look | {"linestyle": "", "markerfacecolor": "white", "zorder": 3},
    )
    below = drawn[quantity] - drawn[f"{quantity}_low"]
    above = drawn[f"{quantity}_high"] - drawn[quantity]
    axes.errorbar(
        drawn["headdim"],
        drawn[quantity].astype(float),
        yerr=[below.astype(float), above.astype(float)],
        fmt="none",
        ecolor=look["color"],
        elinewidth=0.7,
        capsize=1.6,
        capthick=0.6,
    )


def _strip(
    axes: Axes, panel: pd.DataFrame, incomplete: Sequence[Contestant], quantity: str
) -> None:
    """One line per contestant with gaps, a mark at every D where it has no value."""
    for line, contestant in enumerate(incomplete):
        points = only(panel, contestant)
        for _, point in points[points[quantity].isna()].iterrows():
            mark, _ = GAP_MARKS[point["status"]]
            axes.text(
                point["headdim"],
                line,
                mark,
                ha="center",
                va="center",
                fontsize=style.SMALL,
                color=style.appearance(contestant)["color"],
            )
    labels = [contestant.label for contestant in incomplete]
    axes.set_yticks(range(len(incomplete)), labels, fontsize=style.SMALL)
    axes.set_ylim(len(incomplete) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines["left"].set_visible(False)


def _marked(results: Results, contestant: Contestant) -> str:
    return contestant.label + ("†" if results.note(contestant) else "")


def _notes(results: Results, panel: pd.DataFrame, quantity: str) -> list[str]:
    """Small print under a figure: device and shape, marks, staleness."""
    notes = [f"{results.device}; {panel.iloc[0]['size']}; median and 95 % interval"]
    kernel_notes = {
        note for contestant in contestants_in(panel) if (note := results.note(contestant))
    }
    notes += [f"† {note}" for note in sorted(kernel_notes)]
    gaps = set(panel["status"][panel[quantity].isna()])
    if statuses := [status for status in GAP_MARKS if status in gaps]:
        notes.append("; ".join(" ".join(GAP_MARKS[status]) for status in statuses))
    if (panel["status"][panel[quantity].notna()] == "throttled").any():
        notes.append("hollow: many rounds discarded, slowed down by heat")
    if stale := stale_labels(panel):
        notes.append(f"STALE, recorded with other kernel sources: {', '.join(stale)}")
    return notes


def _write_data(panel: pd.DataFrame, quantity: str, path: Path) -> None:
    """The plotted numbers: what to compare where the pixels of another FreeType differ."""
    numbers = [quantity, f"{quantity}_low", f"{quantity}_high"]
    columns = ["kernel", "acc", "headdim", "status", *numbers, "samples", "processes", "stale"]
    panel[columns].to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def speedup_figure(name: str, acc: str) -> Callable[[Results, pd.DataFrame, Path], str]:
    """The builder of a speed-up figure: our kernels with one accumulator over the baseline."""
    return functools.partial(
        build,
        name=name,
        quantity="speedup",
        unit=f"speed-up over {EFFICIENT.label}",
        contestants=lambda contestant: contestant.acc == acc and not contestant.is_oracle,
        reference=1.0,
    )

"""What the figures over the head dimension share: panel, intervals, a strip of gaps, notes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffpa.report.names import EFFICIENT, Contestant
from ffpa.report.results import Results, contestants_in, only
from ffpa.report.tables import HEADDIMS, headdim_panel

from . import style
from .parts import GAP_MARKS, curve, finish, height, marked, notes_of, write_data

# Heights in inches: the panel, and a line of the strip of gap marks.
PANEL, STRIP_LINE = 1.55, 0.1


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
    dims: Sequence[int] = HEADDIMS,
) -> str:
    """Draw `quantity` over the head dimension, save it with its data, return the caption.

    `quantity` names the frame's column; its _low and _high columns are the interval.
    `reference` draws a level line (1 for a speed-up).
    """
    panel = headdim_panel(frame, contestants, dims)
    notes = notes_of(results, panel, quantity, panel.iloc[0]["size"])
    with style.styled():
        figure = _draw(results, panel, quantity, unit, reference, notes, dims)
        style.save(figure, folder, name)
    numbers = [quantity, f"{quantity}_low", f"{quantity}_high"]
    columns = ["kernel", "acc", "headdim", "status", *numbers, "samples", "processes", "stale"]
    write_data(panel, columns, folder / f"{name}.csv")
    return "; ".join(notes)


def _draw(
    results: Results,
    panel: pd.DataFrame,
    quantity: str,
    unit: str,
    reference: float | None,
    notes: Sequence[str],
    dims: Sequence[int] = HEADDIMS,
) -> Figure:
    incomplete = [
        contestant
        for contestant in contestants_in(panel)
        if only(panel, contestant)[quantity].isna().any()
    ]
    strip = STRIP_LINE * len(incomplete)
    present = contestants_in(panel)
    figure = style.new_figure(height(PANEL + 0.25 + strip, len(present), notes))
    ratios = [PANEL, strip] if incomplete else [PANEL]
    all_axes = figure.subplots(
        len(ratios), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": ratios}
    )[:, 0]

    main: Axes = all_axes[0]
    for contestant in present:
        # A point that was not even tried has to break the line as one without a value does.
        label = marked(results, contestant)
        curve(main, contestant, only(panel, contestant), "headdim", quantity, label, dims)
    if reference is not None:
        main.axhline(reference, color="black", linewidth=0.6, linestyle=":")
    main.set_ylabel(unit)
    main.set_ylim(bottom=0)
    main.tick_params(axis="x", length=0)
    if incomplete:
        _strip(all_axes[1], panel, incomplete, quantity)
    bottom: Axes = all_axes[-1]
    shown = sorted(panel["headdim"].unique())
    bottom.set_xticks(shown, [str(dim) for dim in shown], rotation=45)
    bottom.set_xlabel("head dimension D")
    finish(figure, notes, main)
    return figure


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

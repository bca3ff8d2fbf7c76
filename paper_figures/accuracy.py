"""Error over N, D and the size of the inputs, with the region in which F16 sums overflow."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullLocator

from ffpa.report.results import Results, contestants_in, only

from . import style
from .parts import curve, finish, gap_marks, height, marked, notes_of, running, some, write_data
from .sheet import Sheet

NAME, PANEL = "accuracy", 1.2
F16_MAX = 65504
# What the two other panels hold fixed.
HEADDIM, LENGTH = 512, 8192


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Draw the figure, save it with its data, return the caption."""
    panel, _ = running(some(frame[frame["dtype"] == "fp16"], "fp16 rows of accuracy"), "err_rel")
    heads = panel["nheads_q"].iloc[0]
    notes = notes_of(results, panel, "err_rel", f"B=1 H={heads} fp16")
    notes.append(
        f"top: D = {HEADDIM}; middle: N = {LENGTH}; bottom: both, with larger query and key; "
        f"shaded: scaled scores pass {F16_MAX}, the largest F16 number"
    )
    measured = ", ".join(str(dim) for dim in sorted(panel["headdim"].unique()))
    notes.append(f"measured at D = {measured} only")
    present = contestants_in(panel)
    plain = panel["input_scale"] == 1
    wide, long = panel["headdim"] == HEADDIM, panel["seqlen_q"] == LENGTH
    with style.styled():
        figure = style.new_figure(height(3 * PANEL + 0.5, len(present), notes))
        by_length, by_dim, by_scale = figure.subplots(3, 1)
        _draw(results, by_length, panel[plain & wide], "seqlen_q")
        by_length.set_xlabel("sequence length N", labelpad=1)
        _draw(results, by_dim, panel[plain & long], "headdim")
        by_dim.set_xlabel("head dimension D", labelpad=1)
        _draw(results, by_scale, panel[wide & long], "input_scale")
        by_scale.set_xlabel("standard deviation of query and key", labelpad=1)
        _shade(by_scale, overflow_scale(heads * LENGTH**2))
        by_dim.sharey(by_length)
        by_length.yaxis.set_major_locator(LogLocator(subs=(1, 3)))  # their span is short
        by_length.yaxis.set_major_formatter(LogFormatterSciNotation(labelOnlyBase=False))
        by_length.yaxis.set_minor_locator(NullLocator())
        for axes in (by_length, by_scale):
            low, high = axes.get_ylim()
            axes.set_ylim(low, high * (high / low) ** 0.15)  # room for the marks
        finish(figure, notes, by_length)
        style.save(figure, folder, NAME)
    columns = ["kernel", "acc", "headdim", "seqlen_q", "input_scale", "status", "err_rel",
               "err_max", "stale"]  # fmt: skip
    write_data(panel, columns, folder / f"{NAME}.csv")
    return "; ".join(notes)


def overflow_scale(scores: int) -> float:
    """The deviation of query and key at which the largest of so many scaled scores is 65504.

    Scaled scores are sums of D products over √D: normal, of deviation scale², and the largest
    of n normal numbers is near √(2 ln n).
    """
    return math.sqrt(F16_MAX / math.sqrt(2 * math.log(scores)))


def _draw(results: Results, axes: Axes, panel: pd.DataFrame, x: str) -> None:
    places = sorted(panel[x].unique())
    for contestant in contestants_in(panel):
        label = marked(results, contestant)
        curve(axes, contestant, only(panel, contestant), x, "err_rel", label, places)
    gap_marks(axes, panel, x, "err_rel")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("relative error")


def _shade(axes: Axes, start: float) -> None:
    """From `start` on, as far as the points go."""
    left, right = axes.get_xlim()
    if start > right:
        return
    axes.axvspan(start, right, color="#eeeeee", zorder=0, linewidth=0)
    axes.set_xlim(left, right)
    axes.text(
        start * 1.03, 0.97, "F16 overflows", transform=axes.get_xaxis_transform(),
        fontsize=style.SMALL, color=style.GREY, rotation=90, va="top",
    )  # fmt: skip


SHEET = Sheet(NAME, "Error over length, head dimension and size of the inputs", "accuracy", build)

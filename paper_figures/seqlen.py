"""Rate over the sequence length, a small panel per head dimension measured at several."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.ticker import NullLocator

from ffpa.report.results import Results, contestants_in, only

from . import style
from .parts import (
    curve,
    finish,
    gap_marks,
    height,
    marked,
    notes_of,
    running,
    some,
    write_data,
)
from .sheet import Sheet

NAME, PANEL = "seqlen", 1.05
LENGTHS = 3  # fewer make no curve
COLUMNS = 3  # of panels


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Draw the figure, save it with its data, return the caption."""
    square = (frame["seqlen_q"] == frame["seqlen_k"]) & ~frame["causal"].astype(bool)
    fitting = square & (frame["dtype"] == "fp16") & (frame["variant"] == "")
    panel, idle = running(some(frame[fitting], "fp16 rows of seqlen, not causal"), "tflops")
    measured = panel.groupby("headdim")["seqlen_q"].nunique()
    dims = sorted(measured.index[measured >= LENGTHS])
    drawn = some(panel[panel["headdim"].isin(dims)], f"head dimension with {LENGTHS} lengths")
    first = drawn.iloc[0]
    notes = notes_of(results, drawn, "tflops", f"B={first['batch']} H={first['nheads_q']} fp16")
    if idle:
        notes.append(f"could run nowhere: {', '.join(idle)}")
    lengths = sorted(drawn["seqlen_q"].unique())
    present = contestants_in(drawn)
    with style.styled():
        rows = -(-len(dims) // COLUMNS)
        figure = style.new_figure(height(PANEL * rows, len(present), notes))
        grid = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
        all_axes = list(grid.flat)[: len(dims)]
        for axes in list(grid.flat)[len(dims) :]:
            axes.remove()
        for axes, dim in zip(all_axes, dims, strict=True):
            points = drawn[drawn["headdim"] == dim]
            for contestant in present:
                label = marked(results, contestant)
                curve(axes, contestant, only(points, contestant), "seqlen_q", "tflops", label,
                      lengths)  # fmt: skip
            gap_marks(axes, points, "seqlen_q", "tflops")
            axes.set_title(f"D = {dim}", fontsize=7, pad=2)
            axes.set_xscale("log", base=2)
        _, top = all_axes[0].get_ylim()
        all_axes[0].set_ylim(0, 1.25 * top)  # room for the marks
        shown = lengths[::2]
        for axes in all_axes[-COLUMNS:]:  # the lowest of each column
            axes.set_xticks(shown, [f"{length}" for length in shown], rotation=45)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("length N", labelpad=1)
        for row in grid:
            row[0].set_ylabel("TFLOP/s")
        finish(figure, notes, all_axes[0])
        style.save(figure, folder, NAME)
    columns = ["kernel", "acc", "headdim", "seqlen_q", "status", "tflops", "tflops_low",
               "tflops_high", "samples", "processes", "stale"]  # fmt: skip
    write_data(panel, columns, folder / f"{NAME}.csv")
    return "; ".join(notes)


SHEET = Sheet(NAME, "Rate over the sequence length", "seqlen", build)

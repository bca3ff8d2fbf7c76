"""Rate over the sequence length, a panel per head dimension measured at several lengths."""

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

NAME, PANEL = "seqlen", 1.15
LENGTHS = 3  # fewer make no curve


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
        figure = style.new_figure(height(PANEL * len(dims), len(present), notes))
        all_axes = figure.subplots(len(dims), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, dim in zip(all_axes, dims, strict=True):
            points = drawn[drawn["headdim"] == dim]
            for contestant in present:
                label = marked(results, contestant)
                curve(axes, contestant, only(points, contestant), "seqlen_q", "tflops", label,
                      lengths)  # fmt: skip
            gap_marks(axes, points, "seqlen_q", "tflops")
            axes.set_ylabel(f"TFLOP/s, D = {dim}")
            axes.set_xscale("log", base=2)
        _, top = all_axes[0].get_ylim()
        all_axes[0].set_ylim(0, 1.25 * top)  # room for the marks
        all_axes[-1].set_xticks(lengths, [f"{length}" for length in lengths], rotation=45)
        all_axes[-1].xaxis.set_minor_locator(NullLocator())
        all_axes[-1].set_xlabel("sequence length N")
        finish(figure, notes, all_axes[0])
        style.save(figure, folder, NAME)
    columns = ["kernel", "acc", "headdim", "seqlen_q", "status", "tflops", "tflops_low",
               "tflops_high", "samples", "processes", "stale"]  # fmt: skip
    write_data(panel, columns, folder / f"{NAME}.csv")
    return "; ".join(notes)


SHEET = Sheet(NAME, "Rate over the sequence length", "seqlen", build)

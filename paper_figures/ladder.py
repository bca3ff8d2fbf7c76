"""Histogram of the ladder: a group of bars per rung, a bar per sequence length."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ffpa.report.ladder import (
    EXPERIMENT,
    OFFICIAL,
    ladder_caption,
    ladder_panel,
    rung_label,
    step_of,
)
from ffpa.report.names import Contestant
from ffpa.report.results import Results, contestants_in, only
from ffpa.report.tables import stale_notes

from . import style
from .sheet import Sheet

NAME = "ladder"
SHADES = ("#9ECAE1", "#4292C6", "#08519C", "#08306B")  # light to dark: short to long sequences
GROUP = 0.8  # of the distance between two rungs that its bars fill
HEIGHT = 2.5
NOTE_CHARACTERS = 78


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Draw the histogram, save it with its data, return the caption."""
    panel = ladder_panel(results)
    with style.styled():
        style.save(draw(results, panel), folder, NAME)
    columns = ["kernel", "seqlen_q", "status", "median_ms", "tflops"]
    columns += ["percent", "percent_low", "percent_high", "stale"]
    panel[columns].to_csv(
        folder / f"{NAME}.csv", index=False, float_format="%.6g", lineterminator="\n"
    )
    return ladder_caption(results, panel)


def draw(results: Results, panel: pd.DataFrame) -> Figure:
    """The figure; call inside `style.styled()`."""
    figure = style.new_figure(HEIGHT)
    axes = figure.subplots()
    rungs = [contestant for contestant in contestants_in(panel) if contestant != OFFICIAL]
    lengths = sorted(panel["seqlen_q"].unique())
    width = GROUP / len(lengths)
    for turn, seqlen in enumerate(lengths):
        for place, contestant in enumerate(rungs):
            points = only(panel, contestant).set_index("seqlen_q")
            left = place - GROUP / 2 + turn * width
            if seqlen in points.index and pd.notna(points.loc[seqlen, "percent"]):
                point = points.loc[seqlen]
                axes.bar(
                    left,
                    point["percent"],
                    width,
                    align="edge",
                    color=SHADES[turn % len(SHADES)],
                    label=f"N={seqlen}" if place == 0 else None,
                    yerr=[
                        [point["percent"] - point["percent_low"]],
                        [point["percent_high"] - point["percent"]],
                    ],
                    error_kw={"elinewidth": 0.5},
                )
            elif turn == 0 and not points["counts"].any():
                axes.text(place, 2, "×", ha="center", fontsize=style.SMALL, color=style.GREY)
    axes.axhline(100, color="black", linewidth=0.6, linestyle=":")
    axes.set_ylabel(f"% of {OFFICIAL.label} (FlashAttention-2)")
    axes.set_xticks(range(len(rungs)), [_tick(rung) for rung in rungs], rotation=60, ha="right")
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")
    axes.legend(loc="upper left", ncols=2)
    crossed = "" if panel.groupby("rung")["counts"].any().all() else "; × cannot run"
    note = f"{results.device}; fp16, D=128{crossed}; median and 95 % interval of the ratios"
    note = "; ".join([note, *stale_notes(panel)])
    figure.supxlabel(
        "\n".join(textwrap.wrap(note, NOTE_CHARACTERS)), fontsize=style.SMALL, color=style.GREY
    )
    return figure


def _tick(contestant: Contestant) -> str:
    return rung_label(contestant) if step_of(contestant) else contestant.label.removesuffix(" F32")


SHEET = Sheet(
    name=NAME,
    title="The ladder: speed of each step as per cent of FlashAttention-2",
    experiment=EXPERIMENT,
    build=build,
)

"""What an accumulator costs and gains: rate against error at two head dimensions, and a table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from ffpa.report.names import Contestant
from ffpa.report.results import Results, contestants_in, only
from ffpa.report.tables import GAP, headdim_panel, stale_notes

from . import style
from .parts import finish, height, interval, marked, notes_of, running, write_data
from .sheet import Sheet, save_table

NAME, TABLE_NAME, PANEL = "accumulation", "accumulation_table", 1.7
DIMS = range(64, 1025, 64)
DRAWN = (512, 1024)


def panel_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Kernels with every accumulator, and the baselines."""
    return headdim_panel(frame, lambda one: not (one.is_ceiling or one.is_oracle), DIMS)


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Draw the figure, save it with its data, return the caption."""
    panel = panel_of(frame)
    panel, _ = running(panel[panel["headdim"].isin(DRAWN)], "tflops")
    panel = panel.assign(percent=100 * panel["err_rel"].astype(float))
    notes = notes_of(results, panel[panel["tflops"].notna()], "tflops", panel.iloc[0]["size"])
    notes.append("up and to the left is better; error against float64, root mean square")
    present = contestants_in(panel)
    with style.styled():
        figure = style.new_figure(height(PANEL, len(present), notes))
        all_axes = figure.subplots(1, len(DRAWN), sharex=True, sharey=True)
        for axes, dim in zip(all_axes, DRAWN, strict=True):
            points = panel[panel["headdim"] == dim]
            for contestant in present:
                _scatter(axes, contestant, only(points, contestant), marked(results, contestant))
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_title(f"D = {dim}", fontsize=7, pad=3)
            axes.set_xlabel("relative error (%)")
        all_axes[0].set_ylabel("TFLOP/s")
        all_axes[0].set_ylim(bottom=0)
        finish(figure, notes, all_axes[0])
        style.save(figure, folder, NAME)
    columns = ["kernel", "acc", "headdim", "status", "tflops", "tflops_low", "tflops_high",
               "err_rel", "err_max", "stale"]  # fmt: skip
    write_data(panel, columns, folder / f"{NAME}.csv")
    return "; ".join(notes)


def build_table(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """TFLOP/s and relative error by D and contestant."""
    panel, idle = running(panel_of(frame), "tflops")
    table = pd.DataFrame({"D": sorted(panel["headdim"].unique())})
    for contestant in contestants_in(panel):
        points = only(panel, contestant).set_index("headdim")
        table[contestant.label] = [_cell(points, dim) for dim in table["D"]]
    save_table(table, folder, TABLE_NAME)
    sentences = [f"{results.device}; {panel.iloc[0]['size']}; TFLOP/s (relative error)"]
    if idle:
        sentences.append(f"could run at no D: {', '.join(idle)}")
    return "; ".join(sentences + stale_notes(panel))


def _scatter(axes: Axes, contestant: Contestant, points: pd.DataFrame, label: str) -> None:
    drawn = points.dropna(subset=["tflops", "percent"])
    look = style.appearance(contestant) | {"linestyle": "", "markersize": 4.5}
    # An empty plot still gives the legend its entry where only the other panel has the point.
    axes.plot(drawn["percent"], drawn["tflops"].astype(float), label=label, **look)
    if len(drawn):
        interval(axes, contestant, drawn, "percent", "tflops")


def _cell(points: pd.DataFrame, dim: int) -> str:
    if dim not in points.index or not points.loc[dim, "counts"]:
        return GAP
    point = points.loc[dim]
    error = f"{point['err_rel']:.1e}".replace("e-0", "e-")
    return f"{point['tflops']:.0f} ({error})"


FIGURE = Sheet(NAME, "Speed against error, by accumulator", "accumulation", build)
TABLE = Sheet(TABLE_NAME, "TFLOP/s and relative error by accumulator", "accumulation", build_table)

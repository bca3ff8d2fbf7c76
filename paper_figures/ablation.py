"""What each design choice of split_d-sm80 is worth: the rate with it taken back."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from ffpa.report.names import Contestant
from ffpa.report.results import Results, ours
from ffpa.report.tables import GAP, stale_notes

from . import style
from .parts import finish, height, marked, notes_of, some, write_data
from .sheet import Sheet, save_table

NAME, TABLE_NAME, LINE = "ablation", "ablation_table", 0.18
SHIPPED = "as shipped"
BASE = Contestant("split_d-sm80", "f32")


def panel_of(results: Results) -> pd.DataFrame:
    """By D, the largest first: the shipped configuration, then its variants from best to worst.

    `shipped` is the rate beside which each is drawn, `speedup` the ratio in the same rounds.
    """
    frame = results.frame(NAME, BASE)
    own = ours(frame)
    own = some(own[own["acc"] == "f32"], "F32 rows of ablation")
    groups = []
    for dim in sorted(own["headdim"].unique(), reverse=True):
        group = own[own["headdim"] == dim]
        whole = group["variant"] == ""
        shipped = some(group[whole], f"row of ablation of what ships at D = {dim}").head(1)
        variants = group[~whole].sort_values("tflops", ascending=False, na_position="last")
        both = pd.concat([shipped, variants])
        groups.append(both.assign(shipped=float(shipped["tflops"].iloc[0])))
    panel = pd.concat(groups)
    first = panel["variant"] == ""
    return panel.assign(
        choice=panel["variant"].mask(first, SHIPPED + ", D = " + panel["headdim"].astype(str))
    )


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Draw the figure, save it with its data, return the caption."""
    panel = panel_of(results)
    notes = notes_of(results, panel, "tflops", panel.iloc[0]["size"])
    notes.append(
        "each choice is taken back alone, so that losses do not add up; in brackets: median of the "
        "ratios in the same rounds, less one"
    )
    notes.append("what each variant changes stands in csrc/kernels.toml")
    with style.styled():
        figure = style.new_figure(height(LINE * len(panel) + 0.25, 0, notes))
        axes: Axes = figure.subplots()
        for line, (_, point) in enumerate(panel.iterrows()):
            _bar(axes, line, point)
        axes.set_yticks(range(len(panel)), panel["choice"])
        axes.set_ylim(len(panel) - 0.5, -0.5)
        axes.set_xlim(0, 1.25 * panel["tflops_high"].astype(float).max())
        axes.grid(False, axis="y")
        axes.set_xlabel(f"TFLOP/s of {marked(results, panel.iloc[0]['contestant'])}")
        finish(figure, notes, axes)
        style.save(figure, folder, NAME)
    columns = ["choice", "headdim", "status", "tflops", "tflops_low", "tflops_high",
               "speedup", "speedup_low", "speedup_high", "registers", "stale"]  # fmt: skip
    write_data(panel, columns, folder / f"{NAME}.csv")
    return "; ".join(notes)


def build_table(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Rate of each variant, and what it is of the shipped one."""
    panel = panel_of(results)
    shares = panel["speedup"].mask(panel["variant"] == "", 1.0)
    table = pd.DataFrame(
        {
            "configuration": panel["choice"],
            "TFLOP/s": [_number(rate, ".0f") for rate in panel["tflops"]],
            "of shipped": [_number(share, ".2f") for share in shares],
            "registers": [_number(count, ".0f") for count in panel["registers"]],
        }
    )
    save_table(table, folder, TABLE_NAME)
    caption = (
        f"{results.device}; {panel.iloc[0]['size']}, F32 accumulation; of shipped: median of the "
        "ratios in the same rounds"
    )
    return "; ".join([caption, *stale_notes(panel)])


def _bar(axes: Axes, line: int, point: pd.Series) -> None:
    """The rate that is left, and what was lost or gained beside it."""
    if pd.isna(point["tflops"]):
        axes.text(0, line, f" {point['status']}", va="center", fontsize=style.SMALL)
        return
    rate, shipped = float(point["tflops"]), float(point["shipped"])
    axes.barh(line, min(rate, shipped), height=0.62, color="#0072B2")
    if rate < shipped:
        axes.barh(line, shipped - rate, left=rate, height=0.62, color="#D55E00", hatch="////",
                  edgecolor="white", linewidth=0)  # fmt: skip
    elif rate > shipped:
        axes.barh(line, rate - shipped, left=shipped, height=0.62, color="#009E73", hatch="....",
                  edgecolor="white", linewidth=0)  # fmt: skip
    axes.vlines(shipped, line - 0.5, line + 0.5, color="black", linewidth=0.6, linestyle=":")
    axes.hlines(line, point["tflops_low"], point["tflops_high"], color="black", linewidth=0.8)
    change = (
        ""
        if point["variant"] == ""
        else f" ({100 * (point['speedup'] - 1):+.1f} %)".replace("-", "−")
    )
    end = max(rate, shipped, point["tflops_high"])
    axes.text(end, line, f" {rate:.0f}{change}", va="center", fontsize=style.SMALL)


def _number(value: float, form: str) -> str:
    return GAP if pd.isna(value) else f"{value:{form}}"


FIGURE = Sheet(NAME, "Each design choice of the sm80 kernel taken back alone", "ablation", build)
TABLE = Sheet(TABLE_NAME, "Each design choice taken back", "ablation", build_table)

"""Kernels against plain products in the same rounds, and what a profiler's counters say."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from ffpa.report.names import CEILING_PREFIX, Contestant, meanings
from ffpa.report.profiles import kernels_and_steps, profile_caption, profile_table
from ffpa.report.results import NoRowsError, Results, contestants_in, only
from ffpa.report.tables import GAP, costs_of, headdim_panel, stale_notes

from . import style
from .parts import curve, finish, height, marked, notes_of, running, write_data
from .sheet import Sheet, save_table

NAME, TABLE_NAME, PROFILE_NAME, PANEL = "roofline", "roofline_table", "profile_table", 1.6
DIMS = (64, 128, 256, 320, 512, 576, 768, 1024)
UNFUSED = Contestant(f"{CEILING_PREFIX}matmul")
SQUARE = Contestant(f"{CEILING_PREFIX}square")


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Draw the figure, save it with its data, return the caption."""
    panel = panel_of(results, frame)
    notes = notes_of(results, panel, "speedup", panel.iloc[0]["size"])
    unfused, square = rates_of(UNFUSED, frame), rates_of(SQUARE, frame)
    notes += meanings([UNFUSED, *([SQUARE] if len(square) else [])])
    profiled = _tensor_shares(results)
    if profiled:
        notes.append("hollow: share of cycles in which the tensor pipe is busy (Nsight Compute)")
    present = contestants_in(panel)
    with style.styled():
        figure = style.new_figure(height(PANEL + 0.25, len(present) + bool(len(square)), notes))
        axes: Axes = figure.subplots()
        for contestant in present:
            points = only(panel, contestant)
            curve(axes, contestant, points, "headdim", "speedup", marked(results, contestant), DIMS)
            busy = [share for share in profiled if share[0] == contestant]
            look = style.appearance(contestant)
            axes.plot(
                [dim for _, dim, _ in busy], [share for *_, share in busy],
                **look | {"linestyle": "", "markerfacecolor": "white"},
            )  # fmt: skip
        axes.axhline(1, color=style.GREY, linewidth=0.8, linestyle=":")
        if len(square):
            label, look = SQUARE.label, style.appearance(SQUARE)
            axes.plot(square.index, square["tflops"] / unfused["tflops"], label=label, **look)
        axes.set_ylim(bottom=0)
        axes.set_xticks(DIMS, [str(dim) for dim in DIMS], rotation=45)
        axes.set_xlabel("head dimension D")
        axes.set_ylabel(f"rate / {UNFUSED.label}")
        finish(figure, notes, axes)
        style.save(figure, folder, NAME)
    columns = ["kernel", "acc", "headdim", "status", "tflops", "speedup", "speedup_low",
               "speedup_high", "registers", "stale"]  # fmt: skip
    data = panel[columns].rename(columns=lambda name: name.replace("speedup", "of_unfused"))
    write_data(data, list(data.columns), folder / f"{NAME}.csv")
    return "; ".join(notes)


def panel_of(results: Results, frame: pd.DataFrame) -> pd.DataFrame:
    """Our kernels, their `speedup` being over the unfused products; the frame's is over EA."""
    over_unfused = results.frame(frame["experiment"].iloc[0], UNFUSED)
    panel, _ = running(
        headdim_panel(over_unfused, lambda one: one.is_ours and not one.is_oracle, DIMS), "speedup"
    )
    if panel.empty:
        raise NoRowsError(f"no rows of roofline with {UNFUSED.kernel} in the same run")
    return panel


def rates_of(products: Contestant, frame: pd.DataFrame) -> pd.DataFrame:
    """The rates of plain products by D; empty where they were not measured."""
    points = frame[frame["headdim"].isin(DIMS) & frame["counts"].astype(bool)]
    return only(points, products).set_index("headdim")[["tflops"]].astype(float).sort_index()


def build_table(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Rate, its share of the unfused products', and what the compiler made of each kernel."""
    panel = panel_of(results, frame)
    table = pd.DataFrame({"D": sorted(panel["headdim"].unique())})
    for contestant in contestants_in(panel):
        points = only(panel, contestant).set_index("headdim")
        table[contestant.label] = [_cell(results, contestant, points, dim) for dim in table["D"]]
    beside = [one for one in (UNFUSED, SQUARE) if len(rates_of(one, frame))]
    for products in beside:
        rates = rates_of(products, frame)["tflops"].reindex(table["D"])
        table[products.label] = [GAP if math.isnan(rate) else f"{rate:.0f}" for rate in rates]
    save_table(table, folder, TABLE_NAME)
    caption = (
        f"{results.device}; {panel.iloc[0]['size']}; TFLOP/s (over {UNFUSED.label}), registers per "
        "thread, + bytes spilled if any, and KiB of shared memory per CTA where it was recorded"
    )
    return "; ".join([caption, *meanings(beside), *stale_notes(panel)])


def _cell(results: Results, contestant: Contestant, points: pd.DataFrame, dim: int) -> str:
    rates = points[["tflops", "speedup"]].astype(float).reindex([dim])
    rate, share = rates.iloc[0]
    if math.isnan(share):
        return GAP
    costs = costs_of(results, contestant, dim)
    smem = f", {costs.smem_bytes / 1024:.0f} KiB" if costs and costs.smem_bytes else ""
    return f"{rate:.0f} ({share:.2f}), {costs or GAP}{smem}"


def build_profile(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """The counters of every profiled launch."""
    save_table(profile_table(results), folder, PROFILE_NAME)
    return profile_caption(results)


def _tensor_shares(results: Results) -> list[tuple[Contestant, int, float]]:
    kernels, _ = kernels_and_steps(results)
    return [
        (Contestant(one.kernel, one.acc), one.headdim, one.tensor_pct / 100)
        for one in kernels
        if one.instance.count("/") == 3  # no variant
    ]


FIGURE = Sheet(NAME, "Rate over that of the same products, not fused", "roofline", build)
TABLE = Sheet(
    TABLE_NAME, "Rate, registers and shared memory of the kernels", "roofline", build_table
)
PROFILE = Sheet(PROFILE_NAME, "Hardware counters of the kernels", "roofline", build_profile)

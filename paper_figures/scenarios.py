"""Shapes that models have: speed-up over EA of whoever runs them, and a table of rates."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import yaml
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from ffpa.record.store import REPOSITORY
from ffpa.report.names import EFFICIENT, meanings
from ffpa.report.results import Results, contestants_in, only
from ffpa.report.tables import GAP, stale_notes

from . import style
from .parts import GAP_MARKS, finish, height, marked, notes_of, running, some, write_data
from .sheet import Sheet, save_table

NAME, TABLE_NAME, LINE = "scenarios", "scenarios_table", 0.2
MARK = 0.035  # of the width: a mark of what has no speed-up
Key = tuple[object, ...]


def names() -> dict[Key, str]:
    """The files of conf/shape by the shape that they hold."""
    found: dict[Key, str] = {}
    for file in sorted((REPOSITORY / "conf" / "shape").glob("*.yaml")):
        shape = yaml.safe_load(file.read_text())
        if {"b", "h", "n", "d"} <= set(shape):
            key = (
                shape["b"], shape["h"], shape.get("hkv", shape["h"]), shape["n"],
                shape.get("nk", shape["n"]), shape["d"], shape.get("causal", False),
                shape.get("dtype", "fp16"),
            )  # fmt: skip
            found[key] = file.stem
    return found


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """The points with the name of their shape; a shape without one is called by its sizes."""
    known = names()
    columns = ["batch", "nheads_q", "nheads_kv", "seqlen_q", "seqlen_k", "headdim", "causal",
               "dtype"]  # fmt: skip
    keys = [tuple(key) for key in frame[columns].itertuples(index=False)]
    sizes = [f"D={dim} {size}" for dim, size in zip(frame["headdim"], frame["size"], strict=True)]
    labels = [known.get(key, size) for key, size in zip(keys, sizes, strict=True)]
    return frame.assign(scenario=labels, problem=sizes)


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Draw the figure, save it with its data, return the caption."""
    everyone = some(named(frame), "rows of scenarios")
    panel, _ = running(everyone, "speedup")
    shapes = list(dict.fromkeys(everyone.sort_values("scenario")["scenario"]))
    # That bf16 has no F16 accumulator is no finding; anything else that went wrong is.
    told = panel[(panel["status"] != "unsupported") | panel["speedup"].notna()]
    told = told[told["contestant"].map(lambda one: one != EFFICIENT and not one.is_ceiling)]
    notes = notes_of(results, told, "speedup", "shapes of conf/shape")
    present = contestants_in(panel)
    with style.styled():
        figure = style.new_figure(height(LINE * len(shapes) + 0.3, len(present), notes))
        axes: Axes = figure.subplots()
        for contestant in present:
            points = only(panel, contestant).dropna(subset=["speedup"])
            look = style.appearance(contestant) | {"linestyle": "", "markersize": 4}
            lines = [shapes.index(name) for name in points["scenario"]]
            values = points["speedup"].astype(float)
            axes.plot(values, lines, label=marked(results, contestant), **look)
            axes.hlines(
                lines, points["speedup_low"].astype(float), points["speedup_high"].astype(float),
                color=look["color"], linewidth=0.8,
            )  # fmt: skip
        axes.axvline(1, color="black", linewidth=0.6, linestyle=":")
        axes.set_yticks(range(len(shapes)), shapes)
        axes.set_ylim(len(shapes) - 0.5, -0.5)
        axes.set_xscale("log")  # one query against a long cache gains ten times what prefill does
        _gaps(axes, told, shapes)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(f"speed-up over {EFFICIENT.label}")
        finish(figure, notes, axes)
        style.save(figure, folder, NAME)
    columns = ["scenario", "kernel", "acc", "headdim", "size", "status", "speedup", "speedup_low",
               "speedup_high", "tflops", "stale"]  # fmt: skip
    write_data(everyone, columns, folder / f"{NAME}.csv")
    return "; ".join(notes)


def _gaps(axes: Axes, told: pd.DataFrame, shapes: list[str]) -> None:
    """Marks right of the points, in the contestants' colours, for what has no speed-up."""
    missing = told[told["speedup"].isna()]
    most = missing["scenario"].value_counts().max() if len(missing) else 0
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** (MARK * most))
    for line, name in enumerate(shapes):
        gaps = missing[missing["scenario"] == name]
        for place, (_, point) in enumerate(gaps.iterrows()):
            axes.text(
                0.99 - MARK * place, line, GAP_MARKS[point["status"]][0],
                transform=axes.get_yaxis_transform(), ha="right", va="center",
                fontsize=style.SMALL, color=style.appearance(point["contestant"])["color"],
            )  # fmt: skip


def build_table(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """TFLOP/s by shape and contestant."""
    panel, idle = running(some(named(frame), "rows of scenarios"), "tflops")
    shapes = panel.drop_duplicates("scenario").sort_values("scenario")
    table = pd.DataFrame({"scenario": shapes["scenario"], "shape": shapes["problem"]})
    for contestant in contestants_in(panel):
        table[contestant.label] = _cells(only(panel, contestant), table["scenario"])
    save_table(table, folder, TABLE_NAME)
    sentences = [f"{results.device}; medians in TFLOP/s (speed-up over {EFFICIENT.label})"]
    sentences += meanings(contestants_in(panel))
    if idle:
        sentences.append(f"could run none: {', '.join(idle)}")
    return "; ".join(sentences + stale_notes(panel))


def _cells(points: pd.DataFrame, scenarios: pd.Series[str]) -> list[str]:
    values = points.set_index("scenario")[["tflops", "speedup"]].astype(float)
    cells = []
    for rate, speedup in values.reindex(scenarios).itertuples(index=False):
        text = f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"
        with_speedup = text if math.isnan(speedup) else f"{text} ({speedup:.2f})"
        cells.append(GAP if math.isnan(rate) else with_speedup)
    return cells


FIGURE = Sheet(NAME, "Speed-up on the shapes of real models", "scenarios", build)
TABLE = Sheet(TABLE_NAME, "TFLOP/s on the shapes of real models", "scenarios", build_table)

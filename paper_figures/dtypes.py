"""Table of the dtypes experiment: rates with fp16 and with bf16 inputs, which are never mixed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ffpa.report.names import EFFICIENT, meanings
from ffpa.report.results import Results, contestants_in, only
from ffpa.report.tables import absent_notes, headdim_panel, rate_cell, stale_notes

from .sheet import Sheet, save_table

NAME = "dtypes_table"
DTYPES = ("fp16", "bf16")
DIMS = range(64, 1025, 64)


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV."""
    panels = {dtype: headdim_panel(frame, dims=DIMS, dtype=dtype) for dtype in DTYPES}
    together = pd.concat(panels.values())
    table = pd.DataFrame({"D": sorted(together["headdim"].unique())})
    for contestant in contestants_in(together):
        if only(together, contestant)["counts"].any():
            for dtype, panel in panels.items():
                points = only(panel, contestant).set_index("headdim")
                cells = [rate_cell(points, dim) for dim in table["D"]]
                table[f"{contestant.label} {dtype}"] = cells
    save_table(table, folder, NAME)
    sizes = " and ".join(panel.iloc[0]["size"] for panel in panels.values())
    sentences = [f"{results.device}; {sizes}, in one run; medians in TFLOP/s"]
    sentences += meanings(contestants_in(together))
    return "; ".join(
        [*sentences, *absent_notes(together, "could run at no D"), *stale_notes(together)]
    )


SHEET = Sheet(
    name=NAME,
    title=f"TFLOP/s with fp16 and bf16 inputs (speed-up over {EFFICIENT.label})",
    experiment="dtypes",
    build=build,
)

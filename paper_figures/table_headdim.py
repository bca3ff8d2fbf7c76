"""Table of the headdim experiment: rate by D and contestant, speed-up in brackets."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ffpa.report.names import EFFICIENT
from ffpa.report.results import Results
from ffpa.report.tables import headdim_caption, headdim_table

from .sheet import Sheet, save_table

NAME = "headdim_table"


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV."""
    table = headdim_table(frame)
    save_table(table, folder, NAME)
    return headdim_caption(results, frame)


SHEET = Sheet(
    name=NAME,
    title=f"TFLOP/s over the head dimension (speed-up over {EFFICIENT.label})",
    experiment="headdim",
    build=build,
)

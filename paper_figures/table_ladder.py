"""Table of the ladder: per cent of the official implementation by step and length."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ffpa.report.ladder import EXPERIMENT, ladder_caption, ladder_panel, ladder_table
from ffpa.report.results import Results

from .sheet import Sheet, save_table

NAME = "ladder_table"


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV."""
    panel = ladder_panel(results)
    save_table(ladder_table(panel), folder, NAME)
    return ladder_caption(results, panel)


SHEET = Sheet(
    name=NAME,
    title="The ladder: per cent of FlashAttention-2, with (ms, TFLOP/s)",
    experiment=EXPERIMENT,
    build=build,
)

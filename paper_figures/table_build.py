"""Table of what the compiled kernels cost: registers and spills per thread by D."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ffpa.report.results import Results
from ffpa.report.tables import resource_caption, resource_table

from .sheet import Sheet, save_table

NAME = "build_table"


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV."""
    table = resource_table(results, frame)
    save_table(table, folder, NAME)
    return resource_caption(results)


SHEET = Sheet(
    name=NAME, title="Registers per thread, as compiled", experiment="headdim", build=build
)

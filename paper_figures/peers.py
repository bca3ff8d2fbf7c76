"""Everything installed that computes the same, over all head dimensions: figure and table."""

from __future__ import annotations

import functools
from pathlib import Path

import pandas as pd

from ffpa.report.names import EFFICIENT
from ffpa.report.results import Results
from ffpa.report.tables import headdim_caption, headdim_table

from . import headdim
from .sheet import Sheet, save_table

DIMS = range(64, 1025, 64)


def build_table(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV."""
    save_table(headdim_table(frame, DIMS), folder, TABLE.name)
    return headdim_caption(results, frame, DIMS)


FIGURE = Sheet(
    name="peers",
    title="Rate of everything installed that computes the same",
    experiment="peers",
    build=functools.partial(
        headdim.build,
        name="peers",
        quantity="tflops",
        unit="TFLOP/s",
        contestants=lambda contestant: not contestant.is_oracle,
        dims=DIMS,
    ),
)
TABLE = Sheet(
    name="peers_table",
    title=f"TFLOP/s of everything installed (speed-up over {EFFICIENT.label})",
    experiment="peers",
    build=build_table,
)

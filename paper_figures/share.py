"""A cell of a table: a rate, and its share of another."""

from __future__ import annotations

import pandas as pd

from ffpa.report.tables import GAP


def rate_and_share(points: pd.DataFrame, whole: pd.DataFrame, dim: int) -> str:
    """TFLOP/s at a D, and in brackets what part of the rate in `whole` it is; both indexed by D."""
    if dim not in points.index or not points.loc[dim, "counts"]:
        return GAP
    rate = points.loc[dim, "tflops"]
    text = f"{rate:.0f}"
    if dim in whole.index and whole.loc[dim, "counts"]:
        text += f" ({rate / whole.loc[dim, 'tflops']:.0%})"
    return text

"""A cell of a table: a rate, and its share of another."""

from __future__ import annotations

import pandas as pd

from ffpa.report.tables import GAP


def rate_and_share(
    points: pd.DataFrame, whole: pd.DataFrame, dim: int, whole_dim: int | None = None
) -> str:
    """TFLOP/s at a D, and in brackets what part of the rate in `whole` it is; both indexed by D.

    Where the rate to compare with is of another D, that is `whole_dim`.
    """
    if dim not in points.index or not points.loc[dim, "counts"]:
        return GAP
    rate = points.loc[dim, "tflops"]
    text = f"{rate:.0f}"
    other = dim if whole_dim is None else whole_dim
    if other in whole.index and whole.loc[other, "counts"]:
        text += f" ({rate / whole.loc[other, 'tflops']:.0%})"
    return text

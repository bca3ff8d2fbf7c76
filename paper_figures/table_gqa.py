"""Table of the gqa experiment: rates with grouped heads, and their share of those without."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ffpa.report.results import NoRowsError, Results, contestants_in, only, ours
from ffpa.report.tables import absent_notes, stale_notes

from .share import rate_and_share
from .sheet import Sheet, save_table

NAME = "gqa_table"


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV.

    Raises:
        NoRowsError: no rows with grouped heads were recorded.
    """
    own = ours(frame)
    grouped = own["nheads_kv"] < own["nheads_q"]
    if not grouped.any():
        raise NoRowsError(
            "experiment gqa has no rows of our kernels with grouped heads: `nox -s bench -- "
            "experiment=gqa` on a machine with a GPU records them"
        )
    table = pd.DataFrame({"D": sorted(own["headdim"].unique())})
    for contestant in contestants_in(own):
        points = only(own, contestant)
        if points["counts"].any():
            shared, whole = (
                points[grouped.loc[points.index] == wanted].set_index("headdim")
                for wanted in (True, False)
            )
            table[contestant.label] = [rate_and_share(shared, whole, dim) for dim in table["D"]]
    save_table(table, folder, NAME)
    first = own[grouped].iloc[0]
    sentences = [
        f"{results.device}; B={first['batch']} N={first['seqlen_q']} {first['dtype']}, "
        f"{first['nheads_q']} query heads over {first['nheads_kv']}; medians in TFLOP/s, and in "
        "brackets their share of the rate with as many key heads as query heads, in one process"
    ]
    return "; ".join([*sentences, *absent_notes(own, "could run nowhere"), *stale_notes(own)])


SHEET = Sheet(
    name=NAME,
    title="Grouped heads: TFLOP/s (share of the rate with as many key heads)",
    experiment="gqa",
    build=build,
)

"""Table of the causal experiment: rates with the mask, and their share of those without."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ffpa.report.results import NoRowsError, Results, contestants_in, only, ours
from ffpa.report.tables import absent_notes, stale_notes

from .share import rate_and_share
from .sheet import Sheet, save_table

NAME = "causal_table"


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV.

    Raises:
        NoRowsError: no causal rows were recorded.
    """
    own = ours(frame)
    causal = own["causal"].astype(bool)
    if not causal.any():
        raise NoRowsError(
            "experiment causal has no causal rows of our kernels: `nox -s bench -- "
            "experiment=causal` on a machine with a GPU records them"
        )
    lengths = sorted(own["seqlen_q"].unique())
    table = pd.DataFrame({"D": sorted(own["headdim"].unique())})
    for contestant in contestants_in(own):
        for length in lengths:
            points = only(own[own["seqlen_q"] == length], contestant)
            if points["counts"].any():
                masked, whole = (
                    points[points["causal"].astype(bool) == wanted].set_index("headdim")
                    for wanted in (True, False)
                )
                cells = [rate_and_share(masked, whole, dim) for dim in table["D"]]
                table[f"{contestant.label} {length}"] = cells
    save_table(table, folder, NAME)
    first = own[causal].iloc[0]
    sentences = [
        f"{results.device}; B={first['batch']} H={first['nheads_q']} {first['dtype']}, by N; "
        "medians in TFLOP/s of the operations that a causal mask leaves, and in brackets their "
        "share of the rate without it, in one process"
    ]
    return "; ".join([*sentences, *absent_notes(own, "could run nowhere"), *stale_notes(own)])


SHEET = Sheet(
    name=NAME,
    title="Causal attention: TFLOP/s (share of the rate without the mask)",
    experiment="causal",
    build=build,
)

"""Table of the padding experiment: rates beside those at the next multiple of 64."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ffpa.report.results import NoRowsError, Results, contestants_in, only, ours
from ffpa.report.tables import absent_notes, stale_notes

from .share import rate_and_share
from .sheet import Sheet, save_table

NAME = "padding_table"
STEP = 64


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV.

    Raises:
        NoRowsError: no head dimension between multiples of 64 was recorded.
    """
    own = ours(frame)
    dims = sorted(own["headdim"].unique())
    if all(dim % STEP == 0 for dim in dims):
        raise NoRowsError(
            "experiment padding has no rows between multiples of 64: `nox -s bench -- "
            "experiment=padding` on a machine with a GPU records them"
        )
    table = pd.DataFrame({"D": dims, "computed as": [_padded(dim) for dim in dims]})
    for contestant in contestants_in(own):
        points = only(own, contestant).set_index("headdim")
        table[contestant.label] = [
            rate_and_share(points, points.drop(dim, errors="ignore"), dim, _padded(dim))
            for dim in dims
        ]
    save_table(table, folder, NAME)
    first = own.iloc[0]
    sentences = [
        f"{results.device}; B={first['batch']} H={first['nheads_q']} N={first['seqlen_q']} "
        f"{first['dtype']}; medians in TFLOP/s of the operations that D itself asks for, and in "
        "brackets their share of the rate at the multiple of 64 that D is computed as"
    ]
    return "; ".join([*sentences, *absent_notes(own, "could run nowhere"), *stale_notes(own)])


def _padded(dim: int) -> int:
    return -(-dim // STEP) * STEP


SHEET = Sheet(
    name=NAME,
    title="Head dimensions between multiples of 64: TFLOP/s (share of the rate at the multiple)",
    experiment="padding",
    build=build,
)

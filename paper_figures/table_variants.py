"""Table of the variants experiment: what less shared memory leaves of the rate."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ffpa.report.names import Contestant
from ffpa.report.results import NotRecordedError, Results, contestants_in, only, ours
from ffpa.report.tables import stale_notes

from .share import rate_and_share
from .sheet import Sheet, save_table

NAME = "variants_table"


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV.

    Raises:
        NotRecordedError: none of the variants runs on the device.
    """
    own = ours(frame)
    variants = own["variant"] != ""
    if not (variants & own["counts"].astype(bool)).any():
        raise NotRecordedError(
            "experiment variants has no rows of variants, which are compiled for sm_80 alone: "
            "`nox -s bench -- experiment=variants` on a GPU of sm_80 to sm_89 records them"
        )
    table = pd.DataFrame({"D": sorted(own["headdim"].unique())})
    for contestant in contestants_in(own):
        shipped = Contestant(contestant.kernel, contestant.acc)
        points, whole = (only(own, one).set_index("headdim") for one in (contestant, shipped))
        others = whole if contestant.variant else whole.iloc[:0]
        table[contestant.label] = [rate_and_share(points, others, dim) for dim in table["D"]]
    save_table(table, folder, NAME)
    first = own.iloc[0]
    sentences = [
        f"{results.device}; B={first['batch']} H={first['nheads_q']} N={first['seqlen_q']} "
        f"{first['dtype']}; medians in TFLOP/s, and in brackets their share of the rate of the "
        "configuration that this device gets; smem163 and smem99 are for devices with 163 and "
        "99 KiB of shared memory a CTA, empty where the same configuration serves them"
    ]
    return "; ".join([*sentences, *stale_notes(own)])


SHEET = Sheet(
    name=NAME,
    title="Less shared memory: TFLOP/s (share of the rate with all of it)",
    experiment="variants",
    build=build,
)

"""Table of the stalls experiment: errors over N where F16 sums lose addends that are all alike."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ffpa.report.results import Results, contestants_in, only
from ffpa.report.tables import GAP, stale_notes

from .parts import running, some
from .sheet import Sheet, save_table

NAME = "stalls_table"
PLACE = {"headdim": "D", "value_mean": "mean of V", "seqlen_k": "N"}


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Write the table as TeX, Markdown and CSV.

    Raises:
        NoRowsError: nothing ran with fp16 inputs.
    """
    panel, idle = running(frame[frame["dtype"] == "fp16"], "err_rel")
    panel = some(panel, "fp16 errors of stalls").sort_values(list(PLACE), kind="stable")
    places = panel[list(PLACE)].drop_duplicates()
    table = places.rename(columns=PLACE).reset_index(drop=True).astype(object)
    table[PLACE["value_mean"]] = [f"{mean:g}" for mean in places["value_mean"]]
    for contestant in contestants_in(panel.sort_index()):
        points = only(panel, contestant).set_index(list(PLACE))
        table[contestant.label] = [
            _cell(points, place) for place in places.itertuples(index=False, name=None)
        ]
    save_table(table, folder, NAME)
    sentences = [
        f"{results.device}; B=1 H={panel.iloc[0]['nheads_q']} fp16; relative error against "
        "float64, root mean square, of equal weights (query and key × "
        f"{panel.iloc[0]['input_scale']:g}) and values of deviation 1 around the mean"
    ]
    refused = panel[panel["status"] == "unsupported"]
    sentences += [f"refused: {reason}" for reason in dict.fromkeys(refused["reason"])]
    if idle:
        sentences.append(f"could run nowhere: {', '.join(idle)}")
    return "; ".join([*sentences, *stale_notes(panel)])


def _cell(points: pd.DataFrame, place: tuple[object, ...]) -> str:
    """The error, and what else there is to say about the point; a refusal as such."""
    if place not in points.index:
        return GAP
    point = points.loc[[place]].iloc[0]
    status = "refused" if point["status"] == "unsupported" else point["status"].replace("_", " ")
    if pd.isna(point["err_rel"]):
        return str(status)
    return f"{point['err_rel']:.1e}" + (f" ({status})" if status != "ok" else "")


SHEET = Sheet(
    name=NAME,
    title="Equal weights of values with a mean: where F16 sums stall",
    experiment="stalls",
    build=build,
)

"""The ladder: from-scratch kernels, one idea a step, as per cent of the official implementation."""

from __future__ import annotations

import re

import pandas as pd

from .names import Contestant
from .results import NoRowsError, Results, contestants_in, only
from .tables import GAP, absent_notes, stale_notes

EXPERIMENT = "ladder"
OFFICIAL = Contestant("sdpa-flash")  # row 0: FlashAttention-2 as torch ships it
HOPPER = Contestant("split_d-sm90", "f32")  # the last rung: Hopper's own instructions
HEADDIM = 128


def ladder_panel(results: Results) -> pd.DataFrame:
    """The rungs in their order at every length, with `percent` of row 0 in the same rounds.

    Raises:
        NoRowsError: no fp16 rows of the experiment, or none of row 0.
    """
    frame = results.frame(EXPERIMENT, OFFICIAL)
    panel = frame[
        (frame["dtype"] == "fp16")
        & ~frame["causal"].astype(bool)
        & (frame["headdim"] == HEADDIM)
        & frame["contestant"].map(lambda contestant: not contestant.is_ceiling)
    ].copy()
    if only(panel, OFFICIAL).empty:
        raise NoRowsError(
            f"experiment {EXPERIMENT} has no fp16 rows of {OFFICIAL.label} with D = {HEADDIM}: "
            f"`nox -s bench -- experiment={EXPERIMENT}` on a machine with a GPU records them"
        )
    official = panel["contestant"].map(lambda contestant: contestant == OFFICIAL)
    for bound in ("", "_low", "_high"):
        ratio = panel[f"speedup{bound}"].astype(float)
        panel[f"percent{bound}"] = 100 * ratio.mask(official & panel["counts"].astype(bool), 1.0)
    panel["rung"] = panel["contestant"].map(rung_label)
    order = panel["contestant"].map(_position)
    return panel.assign(order=order).sort_values(["order", "seqlen_q"]).drop(columns="order")


def rung_label(contestant: Contestant) -> str:
    """How a rung is called: "4 swizzle", "Hopper: split_d-sm90"."""
    if contestant == OFFICIAL:
        return f"0 official ({contestant.label})"
    if step := step_of(contestant):
        return f"{step[0]} {step[1].replace('-', ' ')}"
    if contestant == HOPPER:
        return f"Hopper: {contestant.kernel}"
    return contestant.label


def step_of(contestant: Contestant) -> tuple[int, str] | None:
    """Number and name of a step: (4, "swizzle") of ladder-4-swizzle; None of what is no step."""
    match = re.fullmatch(r"ladder-(\d+)-([\w-]+)", contestant.kernel)
    return (int(match[1]), match[2]) if match else None


def ladder_table(panel: pd.DataFrame) -> pd.DataFrame:
    """One line per rung: per cent of row 0, with (ms, TFLOP/s); row 0 in ms and TFLOP/s.

    The line under row 0 counts as the source of the ladder does, 2·B·H·N²·D instead of 4·B·H·N²·D.
    """
    lengths = sorted(panel["seqlen_q"].unique())
    records = []
    for contestant in contestants_in(panel):
        points = only(panel, contestant).set_index("seqlen_q")
        cells = {str(n): _cell(points, n, contestant) for n in lengths}
        records.append({"kernel": rung_label(contestant), **cells})
        if contestant == OFFICIAL:
            halves = {str(n): _half_rate(points, n) for n in lengths}
            records.append({"kernel": "– counted as 2·B·H·N²·D", **halves})
    return pd.DataFrame(records)


def ladder_caption(results: Results, panel: pd.DataFrame) -> str:
    """What the table and the histogram rest on."""
    point = panel.iloc[0]
    sentences = [
        f"{results.device}; [{point['batch']}, N, {point['nheads_q']}, {HEADDIM}], fp16, F32 "
        f"accumulation, not causal; per cent of {OFFICIAL.label} (FlashAttention-2 as torch ships "
        "it), median of the ratios in the same rounds; in brackets ms and TFLOP/s, 4·B·H·N²·D "
        "operations",
        "steps use Ampere's instructions only; beside its idea step 4 doubles the keys of a tile "
        "(some 4 %), and step 7 halves them again for a third CTA",
    ]
    sentences += absent_notes(panel, "could not run") + stale_notes(panel)
    return "; ".join(sentences)


def _position(contestant: Contestant) -> tuple[int, int, str]:
    if contestant == OFFICIAL:
        return 0, 0, ""
    if step := step_of(contestant):
        return 1, step[0], ""
    return (2, 0, "") if contestant == HOPPER else (3, 0, contestant.kernel)


def _cell(points: pd.DataFrame, seqlen: int, contestant: Contestant) -> str:
    if seqlen not in points.index or not points.loc[seqlen, "counts"]:
        return GAP
    point = points.loc[seqlen]
    cost = f"{point['median_ms']:.3g} ms, {point['tflops']:.0f}"
    if contestant == OFFICIAL:
        return cost
    return GAP if pd.isna(point["percent"]) else f"{point['percent']:.1f} ({cost})"


def _half_rate(points: pd.DataFrame, seqlen: int) -> str:
    if seqlen not in points.index or not points.loc[seqlen, "counts"]:
        return GAP
    return f"{points['tflops'].astype(float)[seqlen] / 2:.0f}"

"""How recorded rows judge claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pandas as pd
from scipy import stats

from .claims import Claim, Metric, Select, listed, span
from .results import NoRowsError, Results
from .tables import one_setting

VerdictName = Literal["holds", "does not hold", "stale", "not tested here"]

# A contestant that was asked for these and failed counts against it; the other statuses say
# that this machine cannot tell.
FAILURES = ("wrong_result", "compile_error", "timeout")


@dataclass(frozen=True)
class Verdict:
    """A claim judged by the rows of one folder."""

    claim: Claim
    name: VerdictName
    measured: str
    why: str = ""

    @property
    def fails(self) -> bool:
        return self.claim.gate and self.name == "does not hold"


def judge_all(claims: Iterable[Claim], results: Results) -> list[Verdict]:
    """Judge claims by the rows of one folder."""
    return [judge(claim, results) for claim in claims]


def summary(verdicts: Sequence[Verdict]) -> str:
    """How often each verdict came: "9 × holds, 3 × does not hold"."""
    counts = Counter(verdict.name for verdict in verdicts)
    return ", ".join(f"{counts[name]} × {name}" for name in get_args(VerdictName) if counts[name])


def judge(claim: Claim, results: Results) -> Verdict:
    """holds, does not hold, stale (rows of other sources), or not tested here with the reason."""
    if not results.rows:
        return Verdict(claim, "not tested here", "", "nothing recorded")
    if results.capability is None:
        return Verdict(claim, "not tested here", "", "these rows come from no GPU")
    architecture = "sm_" + results.capability.replace(".", "")
    if claim.hardware and architecture not in claim.hardware:
        why = f"it is about {' or '.join(claim.hardware)}, and this is {architecture}"
        return Verdict(claim, "not tested here", "", why)
    try:
        frame = results.frame(claim.experiment, claim.metric.opponent)
    except NoRowsError:
        return Verdict(claim, "not tested here", "", f"no rows of {claim.experiment}")
    points = _selected(frame, claim.select)
    if untried := sorted(set(claim.select.headdim) - set(points["headdim"])):
        why = f"no rows for D = {listed(untried)}"
        return Verdict(claim, "not tested here", "", why)
    verdict = _judge_points(claim, points, frame)
    if points["stale"].any() and verdict.name != "not tested here":
        return Verdict(claim, "stale", verdict.measured, "recorded with other kernel sources")
    return verdict


def _judge_points(claim: Claim, points: pd.DataFrame, frame: pd.DataFrame) -> Verdict:
    if claim.metric.kind == "failures":
        failed = points[~points["counts"].astype(bool)]
        why = f"D = {_reasons(failed)}" if len(failed) else ""
        return _compare(claim, _exact(len(failed)), why)
    failed = points[points["status"].isin(FAILURES)]
    if len(failed):
        return Verdict(claim, "does not hold", "", f"D = {_reasons(failed)}")
    idle = points[~points["counts"].astype(bool)]
    if len(idle):
        return Verdict(claim, "not tested here", "", f"D = {_reasons(idle)}")
    values = _quantity(claim, points, frame)
    if (blank := values[values["value"].isna()]).size:
        why = f"no {claim.metric.opponent.label} in the same runs for D = {listed(blank.index)}"
        return Verdict(claim, "not tested here", "", why)
    return _compare(claim, _reduce(claim.metric, values))


def _selected(frame: pd.DataFrame, select: Select) -> pd.DataFrame:
    points = frame[
        frame["contestant"].map(lambda contestant: contestant == select.contestant)
        & (frame["dtype"] == select.dtype)
        & (frame["causal"] == select.causal)
        & frame["headdim"].isin(select.headdim)
    ]
    return one_setting(points) if len(points) else points


def _quantity(claim: Claim, points: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """value, low, high by D, ascending."""
    name = claim.metric.of
    by_dim = points.set_index("headdim").sort_index()
    if name == "err_rel":
        values = by_dim["err_rel"].astype(float)
        if claim.metric.over:
            select = claim.select.model_copy(update=claim.metric.over.model_dump())
            values = values / _selected(frame, select).set_index("headdim")["err_rel"].astype(float)
            values = values.reindex(by_dim.index)
        return pd.DataFrame({"value": values, "low": values, "high": values})
    columns = {"value": name, "low": f"{name}_low", "high": f"{name}_high"}
    return pd.DataFrame({key: by_dim[column].astype(float) for key, column in columns.items()})


def _reduce(metric: Metric, values: pd.DataFrame) -> pd.DataFrame:
    """The numbers to hold against the bounds: lines of value, low, high."""
    dims = [int(dim) for dim in values.index]
    by_dim = dict(zip(dims, values["value"].tolist(), strict=True))
    peak = max(dims, key=lambda dim: by_dim[dim])
    match metric:
        case Metric(kind="every"):
            return values
        case Metric(kind="peak"):
            return values.loc[[peak]]
        case Metric(kind="peak_at"):
            return _exact(peak)
        case Metric(kind="trend"):
            return _exact(stats.kendalltau(dims, list(by_dim.values())).statistic)
        case Metric(kind="step", at=int(at)):
            return _exact(by_dim[at] / by_dim[dims[dims.index(at) - 1]])
        case Metric(kind="share_of_peak", at=int(at)):
            return _exact(by_dim[at] / by_dim[peak])
    raise AssertionError(f"metric {metric.kind} is not a number by D")


def _exact(number: float) -> pd.DataFrame:
    return pd.DataFrame({"value": [number], "low": [number], "high": [number]})


def _compare(claim: Claim, numbers: pd.DataFrame, why: str = "") -> Verdict:
    low, high, slack = claim.expect.low, claim.expect.high, claim.tolerance
    strict = claim.judge == "interval"
    least, most = numbers["low" if strict else "value"], numbers["high" if strict else "value"]
    outside = pd.Series(False, index=numbers.index)
    if low is not None:
        outside |= least < low - slack * abs(low)
    if high is not None:
        outside |= most > high + slack * abs(high)
    measured = span(numbers["value"].min(), numbers["value"].max())
    if strict:
        measured += f" (intervals {span(least.min(), most.max())})"
    if claim.metric.kind == "every" and outside.any():
        where = numbers.index[outside]
        why = "outside at " + ("every D" if outside.all() else f"D = {listed(where)}")
    return Verdict(claim, "does not hold" if outside.any() else "holds", measured, why)


def _reasons(points: pd.DataFrame) -> str:
    return "; ".join(
        f"{point['headdim']}: {point['status']}, {point['reason']}"
        for _, point in points.iterrows()
    )

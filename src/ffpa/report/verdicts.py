"""How recorded rows judge claims."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pandas as pd
from scipy import stats

from ffpa.numerics import error_bound
from ffpa.record import inputs_in_short

from . import statistics
from .claims import Claim, Metric, Select, Sizes, Who, listed, span
from .results import LATE_SHARE, PROFILED, NoRowsError, Results, contestants_in, only
from .tables import INPUTS, one_setting

VerdictName = Literal["holds", "unclear", "does not hold", "stale", "not tested here"]

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
    def explanation(self) -> str:
        """What differs from where the claim was made, when it does not hold here."""
        return (self.claim.differs or "") if self.name == "does not hold" else ""

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
    """By the intervals of what was measured: holds where they lie within the bounds, does not hold
    where one lies outside, and unclear where one reaches over a bound. Else stale (rows of other
    sources), or not tested here with the reason.
    """
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
    if points.empty:
        why = f"no rows of {claim.experiment} with {claim.select}"
        return Verdict(claim, "not tested here", "", why)
    if untried := _untried(claim.select, points):
        return Verdict(claim, "not tested here", "", f"no rows for {untried}")
    verdict = _judge_points(claim, points, frame, results)
    if points["stale"].any() and verdict.name != "not tested here":
        return Verdict(claim, "stale", verdict.measured, "recorded with other kernel sources")
    return verdict


def _judge_points(
    claim: Claim, points: pd.DataFrame, frame: pd.DataFrame, results: Results
) -> Verdict:
    if claim.metric.counts:
        return _count(claim, points)
    failed = points[points["status"].isin(FAILURES)]
    if len(failed):
        return Verdict(claim, "does not hold", "", _reasons(failed))
    idle = points[~points["counts"].astype(bool)]
    if len(idle):
        return Verdict(claim, "not tested here", "", _reasons(idle))
    late = points[points["late"] > LATE_SHARE * points["samples"]]
    if len(late) and claim.metric.of in ("tflops", "speedup"):
        why = f"the times hold the host's own at {_places(late['place'])}"
        return Verdict(claim, "not tested here", "", why)
    values, note = _quantity(claim, points, frame, results)
    if (blank := values[values["value"].isna()]).size:
        why = f"no {_lacking(claim.metric)} for {_places(blank.index)}"
        return Verdict(claim, "not tested here", "", why)
    return _compare(claim, _reduce(claim.metric, values), note)


def _lacking(metric: Metric) -> str:
    if metric.of == "registers":
        return "recorded build"
    if metric.of in PROFILED:
        return "recorded profile"
    if metric.of == "tflops":
        rival = metric.than.contestant.label if isinstance(metric.than, Who) else metric.than
        return f"rate with {rival}"
    return f"{'peer' if metric.over == 'peers' else metric.opponent.label} in the same runs"


def _count(claim: Claim, points: pd.DataFrame) -> Verdict:
    match claim.metric.kind:
        case "failures":
            counted = points[~points["counts"].astype(bool)]
        case "wrong":
            counted = points[points["status"] == "wrong_result"]
        case _:
            if points["repeats"].isna().all():
                why = "the rows do not tell whether a second launch gave the same bits"
                return Verdict(claim, "not tested here", "", why)
            counted = points[points["repeats"].eq(False)]
    number = _exact(pd.Series([len(counted)]))
    return _compare(claim, number, _reasons(counted) if len(counted) else "")


def _untried(select: Select, points: pd.DataFrame) -> str:
    """The sizes asked for that no point has."""
    wanted = {name: getattr(select, name) for name in Sizes.model_fields}
    missing = {
        name: sorted(set(values) - set(points[name]))
        for name, values in wanted.items()
        if isinstance(values, list)
    }
    return ", ".join(
        f"{'D' if name == 'headdim' else name} = {listed(values)}"
        for name, values in missing.items()
        if values
    )


def _selected(frame: pd.DataFrame, select: Select) -> pd.DataFrame:
    chosen = frame["contestant"].map(lambda contestant: contestant == select.contestant)
    for name in Sizes.model_fields:
        wanted = getattr(select, name)
        if wanted is None or wanted in ([], "better"):
            continue
        chosen &= frame[name].isin(wanted if isinstance(wanted, list) else [wanted])
    points = frame[chosen]
    if len(points) and select.headdim:
        points = one_setting(points)
    if select.dtype == "better":
        fastest = points["tflops"].astype(float)
        points = points.loc[fastest.sort_values(na_position="first").index]
        points = points.drop_duplicates("headdim", keep="last")
    # What tells the points of a claim apart: D where it was asked for, else the whole problem.
    place = points["headdim"] if select.headdim else _problems(points)
    return points.assign(place=place).sort_values("headdim", kind="stable")


def _problems(points: pd.DataFrame) -> pd.Series[str]:
    return "D=" + points["headdim"].astype(str) + " " + points["size"]


def _quantity(
    claim: Claim, points: pd.DataFrame, frame: pd.DataFrame, results: Results
) -> tuple[pd.DataFrame, str]:
    """value, low, high by place, and what there is to say about them."""
    metric, by_place = claim.metric, points.set_index("place")
    if metric.over == "peers":
        return _over_peers(claim, by_place, frame, results)
    if isinstance(metric.over, list):
        return _over_each(claim, metric.over, results)
    if metric.over == "model":
        return _over_model(by_place)
    if metric.of in ("err_rel", "registers"):
        ours = by_place[metric.of].astype(float)
        if isinstance(metric.over, Who):
            select = claim.select.model_copy(update=metric.over.model_dump())
            theirs = _selected(frame, select).set_index("place")[metric.of].astype(float)
            theirs = theirs.reindex(by_place.index)
            ours = (ours / theirs).mask(ours.eq(theirs), 1.0)  # errors may both be 0
        return _exact(ours), ""
    if metric.of in PROFILED:
        return _exact(by_place[str(metric.of)].astype(float)), ""
    values = _estimated(by_place, str(metric.of))
    if metric.than:
        select = claim.select.model_copy(update=metric.changed)
        other = _selected(frame, select).set_index("place")
        others = _estimated(other, "tflops").reindex(values.index)
        ratios = [_ratio(values.loc[[place]], others.loc[[place]]) for place in values.index]
        return pd.concat(ratios), ""
    if metric.floors:
        floors = pd.Series(metric.floors).reindex(values.index)
        bounds = values[["value", "low", "high"]].div(floors, axis="index")
        return bounds, _rates(by_place)
    return values, ""


def _estimated(by_place: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """value, low, high of a column of the frame, and runs: what every round gave, by process."""
    bounds = {
        name: by_place[f"{quantity}{end}"].astype(float)
        for name, end in (("value", ""), ("low", "_low"), ("high", "_high"))
    }
    return pd.DataFrame({**bounds, "runs": by_place[f"{quantity}_runs"]})


def _rates(by_place: pd.DataFrame) -> str:
    """The rates behind shares of floors, with the dtype that had them."""
    told = zip(by_place.index, by_place["tflops"], by_place["dtype"], strict=True)
    return "TFLOP/s at " + listed(f"{place}: {rate:.0f} {dtype}" for place, rate, dtype in told)


def _over_model(by_place: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Errors over those that the CPU model allows, and the errors themselves by their inputs."""
    facts = by_place[["acc", "dtype", "seqlen_k", "headdim", *INPUTS]]
    errors = by_place["err_rel"].astype(float)
    allowed = [error_bound(*point) for point in facts.itertuples(index=False, name=None)]
    names = [inputs_in_short(*spread) for spread in facts[INPUTS].itertuples(index=False)]
    by_inputs = errors.groupby(names, sort=False)
    told = listed(
        f"{least:.2%} to {most:.2%} for {name}".replace("%", " %")
        for (name, least), most in zip(by_inputs.min().items(), by_inputs.max(), strict=True)
    )
    return _exact(errors / allowed), f"relative errors: {told}"


def _over_each(
    claim: Claim, opponents: Sequence[Who], results: Results
) -> tuple[pd.DataFrame, str]:
    """The speed-up over that of the opponents over whom it is lowest, point by point."""
    found = []
    for one in opponents:
        frame = results.frame(claim.experiment, one.contestant)
        by_place = _selected(frame, claim.select).set_index("place")
        found.append(_estimated(by_place, "speedup"))
    lowest = found[0]
    for speeds in found[1:]:
        # A blank stays: without the time of one, the fastest of all is not known.
        lower = speeds["value"].isna() | (speeds["value"] < lowest["value"])
        lowest = lowest.mask(lower, speeds)
    return lowest, ""


def _over_peers(
    claim: Claim, by_place: pd.DataFrame, frame: pd.DataFrame, results: Results
) -> tuple[pd.DataFrame, str]:
    found = results.over_peers(claim.experiment, claim.select.contestant)
    rivals = [found.get(shape) for shape in by_place["shape"]]
    bounds = pd.DataFrame(
        [rival[1][:3] if rival else (None, None, None) for rival in rivals],
        columns=["value", "low", "high"],
        index=by_place.index,
        dtype=float,
    )
    ran = sorted({rival[0].label for rival in rivals if rival})
    here = frame[frame["shape"].isin(by_place["shape"])]
    tried = [one for one in contestants_in(here) if one.is_peer]
    absent = [one.label for one in tried if not only(here, one)["counts"].any()]
    note = f"fastest peer: {', '.join(ran)}"
    if absent:
        note += f"; could not run: {', '.join(absent)}"
    return bounds, note


def _reduce(metric: Metric, values: pd.DataFrame) -> pd.DataFrame:
    """The numbers to hold against the bounds: lines of value, low, high."""
    if metric.kind == "every":
        return values
    by_place: dict[Any, float] = values["value"].to_dict()
    places = list(by_place)
    peak = max(places, key=lambda place: by_place[place])
    match metric:
        case Metric(kind="peak"):
            return values.loc[[peak]]
        case Metric(kind="peak_at"):
            return _exact(pd.Series([peak]))
        case Metric(kind="trend"):
            tau = stats.kendalltau(places, list(by_place.values())).statistic
            return _exact(pd.Series([0.0 if math.isnan(tau) else tau]))  # NaN: all are the same
        case Metric(kind="flat"):
            lowest = min(places, key=lambda place: by_place[place])
            return _ratio(values.loc[[lowest]], values.loc[[peak]])
        case Metric(kind="step", at=int(at)):
            return _ratio(values.loc[[at]], values.loc[[places[places.index(at) - 1]]])
        case Metric(kind="share_of_peak", at=int(at)):
            if at == peak:
                return _exact(pd.Series([1.0]))
            return _ratio(values.loc[[at]], values.loc[[peak]])
        case Metric(kind="steps"):
            pairs = itertools.pairwise(places)
            return pd.concat([_ratio(values.loc[[b]], values.loc[[a]]) for a, b in pairs])
    raise AssertionError(f"metric {metric.kind} is not a number by place")


def _ratio(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """One line over another, at the place of the first.

    By statistics.shared_ratio where a process measured both; otherwise, marked as unpaired, by the
    far ends of the two intervals.
    """
    a, b = first.iloc[0], second.iloc[0]
    paired = None
    if "runs" in first and not pd.isna(a["value"]) and not pd.isna(b["value"]):
        paired = statistics.shared_ratio(a["runs"], b["runs"])
    if paired:
        bounds = {"value": paired.value, "low": paired.low, "high": paired.high}
    else:
        ends = (("value", "value"), ("low", "high"), ("high", "low"))
        bounds = {over: a[over] / b[under] for over, under in ends}
    unpaired = "runs" in first and not paired
    return pd.DataFrame({**bounds, "unpaired": unpaired}, index=first.index)


def _exact(numbers: pd.Series[Any]) -> pd.DataFrame:
    return pd.DataFrame({"value": numbers, "low": numbers, "high": numbers})


def _compare(claim: Claim, numbers: pd.DataFrame, why: str = "") -> Verdict:
    low, high = claim.bounds
    least, most = numbers["low"], numbers["high"]
    outside = (most < low) | (least > high)
    doubtful = ~outside & ((least < low) | (most > high))
    measured = span(numbers["value"].min(), numbers["value"].max())
    if not (least.equals(numbers["value"]) and most.equals(numbers["value"])):
        measured += f" (intervals {span(least.min(), most.max())})"
    told = [
        f"{word} at " + ("every point" if there.all() else _places(numbers.index[there]))
        for word, there in (("outside", outside), ("an interval reaches over the bound", doubtful))
        if there.any() and claim.metric.by_place
    ]
    if "unpaired" in numbers and numbers["unpaired"].any():
        places = _places(numbers.index[numbers["unpaired"]])
        told.append(f"no process measured both, so by the far ends of two intervals, at {places}")
    name: VerdictName = "holds"
    if outside.any() or doubtful.any():
        name = "does not hold" if outside.any() else "unclear"
    return Verdict(claim, name, measured, "; ".join([*told, why] if why else told))


def _reasons(points: pd.DataFrame) -> str:
    """Where points failed, by status, with the first reason of each."""
    told = []
    for status, failed in points.groupby("status", sort=False):
        reason = failed.iloc[0]["reason"]
        told.append(f"{_places(failed['place'])}: {status}" + (f" ({reason})" if reason else ""))
    return "; ".join(told)


def _places(places: Iterable[object]) -> str:
    """Head dimensions, or problems in short."""
    values = list(places)
    return ("D = " if all(isinstance(place, int) for place in values) else "") + listed(values)

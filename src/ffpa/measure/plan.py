"""What a sweep will do, before it does it: points, contestants, minutes, memory; what is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

from ffpa.record import Row
from ffpa.settings import MeasureSettings, Settings

from .ceiling import CEILING, COPY, SQUARE, SQUARE_FLOPS, product_bytes
from .contestants import Contestant
from .identity import Provenance, shape_of
from .shape import Shape

# TFLOP/s to plan with where nothing is recorded yet, about what an H200 does; never reported.
ASSUMED_RATE = {"naive": 4.0, "sdpa-math": 40.0, "sdpa-efficient": 130.0, CEILING: 500.0,
                SQUARE: 700.0}  # fmt: skip
OTHER_RATE = 150.0
POINT_OVERHEAD_S = 1.0  # inputs, reference, first launches
COMPILE_S = {"flex": 40.0}  # before a first launch
H200_BYTES = 139 * 2**30


@dataclass(frozen=True)
class Forecast:
    """What a point is expected to take."""

    seconds: float
    gpu_bytes: int


class Planned(NamedTuple):
    """A point of a sweep before it runs."""

    settings: Settings
    contestants: list[Contestant]
    forecast: Forecast
    recorded: bool  # resume=true skips it


def spread(points: Sequence[Settings], limit: int) -> list[Settings]:
    """At most `limit` points of a sweep, evenly spread with both ends; all of them for 0."""
    last = len(points) - 1
    if limit == 0 or limit > last:
        return list(points)
    steps = max(1, limit - 1)
    return [points[round(step * last / steps)] for step in range(limit)]


def forecast(
    settings: Settings,
    contestants: Iterable[Contestant],
    recorded: Iterable[Row],
    capacity: int = H200_BYTES,
) -> Forecast:
    """Time from recorded medians of the same shape where there are any, else from assumed rates.

    Contestants that a device of `capacity` bytes has no room for, or that refused the shape when it
    was recorded, take neither time nor memory.
    """
    shape = shape_of(settings)
    rows = [row for row in recorded if row.shape == _row_shape(settings)]
    known = {
        (row.kernel, row.acc, row.variant): row.median_ms / 1000 for row in rows if row.median_ms
    }
    refused = {
        (row.kernel, row.acc, row.variant) for row in rows if row.status == "unsupported"
    } - set(known)
    fitting = [
        one
        for one in contestants
        if _gpu_bytes(shape, one) <= capacity and (one.kernel, one.acc, one.variant) not in refused
    ]
    rules = settings.measure
    seconds = POINT_OVERHEAD_S + rules.warmup_s
    for one in fitting:
        rate = ASSUMED_RATE.get(one.kernel, OTHER_RATE)
        flops = SQUARE_FLOPS if one.kernel == SQUARE else shape.flops
        launch = known.get((one.kernel, one.acc, one.variant), flops / rate / 1e12)
        seconds += COMPILE_S.get(one.kernel, 0.0) + _contestant_seconds(launch, rules)
    needs = [_gpu_bytes(shape, one) for one in fitting]
    return Forecast(seconds, max(needs, default=shape.input_bytes))


def _contestant_seconds(launch: float, rules: MeasureSettings) -> float:
    least = min(rules.min_samples, rules.max_rounds) * launch
    most = rules.max_rounds * launch
    return 2 * launch + max(least, min(rules.budget_s, most))


def _gpu_bytes(shape: Shape, contestant: Contestant) -> int:
    extra = product_bytes(contestant.kernel, shape)
    if contestant.kernel == COPY:
        extra = shape.input_bytes // 2
    if contestant.kernel == "sdpa-math":
        extra = 12 * shape.scores
    return shape.input_bytes + extra


def _row_shape(settings: Settings) -> tuple[object, ...]:
    """What Row.shape will be for a point."""
    rules = settings.measure
    return (*astuple(shape_of(settings)), rules.input_scale, rules.value_mean)


def is_recorded(
    settings: Settings,
    contestants: Iterable[Contestant],
    rows: Iterable[Row],
    provenance: Provenance,
) -> bool:
    """Whether every contestant has a row of this shape, seed, environment and source."""
    done = {
        (row.kernel, row.acc, row.variant)
        for row in rows
        if row.shape == _row_shape(settings)
        and row.seed == settings.seed
        and row.env_hash == provenance.env_hash
        and row.source_hash == provenance.source_hash
        and row.status not in ("throttled", "timeout")  # another try may do better
    }
    return all((one.kernel, one.acc, one.variant) in done for one in contestants)


def still_holds(settings: Settings, rows: Iterable[Row], holds: Callable[[Row], bool]) -> bool:
    """Whether this shape has rows, and the newest of each of our kernels `holds`: none is stale."""
    newest = {
        (row.kernel, row.acc, row.variant): row for row in rows if row.shape == _row_shape(settings)
    }
    return bool(newest) and all(holds(row) for row in newest.values() if row.acc)

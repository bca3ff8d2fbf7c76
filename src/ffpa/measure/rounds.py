"""Take turns: in each round every contestant runs once, in an order shuffled from a seed.

Drift of clocks or temperature then hits all alike, and the samples of one round can be compared
with each other. A round in which the chip was slowed down by heat is dropped for all.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ffpa.record import Status
from ffpa.settings import MeasureSettings

from .timer import Launch, Sample, Timer

THROTTLED_SHARE = 0.1  # a point with more discarded rounds than this is not to be trusted
COOL_DOWN_S = 1.0

Failure = tuple[Status, str]  # and the reason


@dataclass
class Series:
    """The samples of one contestant; samples[i] belongs to the i-th kept round."""

    samples: list[Sample] = field(default_factory=list)
    stop: str = ""
    failure: Failure | None = None

    @property
    def samples_ms(self) -> list[float]:
        """Times, rounded once to the nanosecond."""
        return [round(sample.ms, 6) for sample in self.samples]

    def median_state(self, name: str) -> float | None:
        """Median over the samples of a field of State; None when never read."""
        values = [getattr(sample.state, name) for sample in self.samples]
        known = [value for value in values if value is not None]
        return round(statistics.median(known), 3) if known else None

    @property
    def power_capped(self) -> int | None:
        """In how many samples the power limit held the clocks; None when never told."""
        flags = [sample.state.power_capped for sample in self.samples]
        known = [flag for flag in flags if flag is not None]
        return sum(known) if known else None

    @property
    def requeued(self) -> int:
        """How many launches were repeated, as the host was late to queue them."""
        return sum(sample.repeated for sample in self.samples)

    @property
    def late(self) -> int:
        """How many samples hold the host's own time."""
        return sum(sample.late for sample in self.samples)


@dataclass
class Rounds:
    """The outcome of a point."""

    series: dict[str, Series]
    kept: int = 0
    discarded: int = 0
    discard_reason: str | None = None

    @property
    def throttled(self) -> bool:
        """Whether too many rounds were discarded."""
        return self.discarded > THROTTLED_SHARE * (self.discarded + self.kept)


def median_rel_ci(samples: list[float]) -> float:
    """Half-width of the median's 95 % interval over the median, from order statistics.

    Infinite below 6 samples, where no such interval exists.
    """
    count = len(samples)
    if count < 6:
        return math.inf
    ordered = sorted(samples)
    reach = 0.98 * math.sqrt(count)  # 1.96 standard deviations of a Binomial(n, 1/2) rank
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return (ordered[high] - ordered[low]) / 2 / statistics.median(ordered)


def warm_up(
    launches: Mapping[str, Launch], timer: Timer, seconds: float, *, clock: Callable[[], float]
) -> None:
    """Run the contestants in turn for `seconds` (at least once each), so that clocks settle."""
    deadline = clock() + seconds
    while launches:
        for launch in launches.values():
            timer.sample(launch)
        if clock() >= deadline:
            return


def run_rounds(
    launches: Mapping[str, Launch],
    timer: Timer,
    rules: MeasureSettings,
    seed: int,
    *,
    classify: Callable[[str, Exception], Failure],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    progress: Callable[[int], None] = lambda kept: None,
) -> Rounds:
    """Measure contestants until their medians are known well enough, or a limit is reached.

    A contestant whose samples took more than `rules.budget_s` sits out once it has
    `rules.min_samples`. `classify` turns the name of a contestant and what its launch raised
    into status and reason; the others go on. `progress` is told the number of kept rounds.
    """
    outcome = Rounds({name: Series() for name in launches})
    active = dict(launches)
    order = random.Random(seed)
    reasons: Counter[str] = Counter()
    started = clock()
    while active:
        names = list(active)
        order.shuffle(names)
        round_samples: dict[str, Sample] = {}
        for name in names:
            try:
                round_samples[name] = timer.sample(active[name])
            except Exception as error:  # one contestant's fault must not end the others' turn
                outcome.series[name].failure = classify(name, error)
                del active[name]
        slowdown = next(
            (s.state.slowdown for s in round_samples.values() if s.state.slowdown), None
        )
        if slowdown:
            reasons[slowdown] += 1
            sleep(COOL_DOWN_S)
        else:
            outcome.kept += 1
            for name, sample in round_samples.items():
                outcome.series[name].samples.append(sample)
            progress(outcome.kept)
        if _retire_slow(active, outcome.series, rules):
            started = clock()  # what the slow ones took is not held against the others
        if stop := _why_stop(active, outcome.series, rules, reasons.total(), clock() - started):
            for name in active:
                outcome.series[name].stop = stop
            break
    outcome.discarded = reasons.total()
    outcome.discard_reason = ", ".join(sorted(reasons)) or None
    return outcome


def _retire_slow(
    active: dict[str, Launch], series: Mapping[str, Series], rules: MeasureSettings
) -> bool:
    """Take those over their budget out of `active`; returns whether there were any."""
    before = len(active)
    for name in list(active):
        samples = series[name].samples
        # Time on the device only: what the host adds is no contestant's fault.
        spent = sum(sample.ms for sample in samples) / 1000
        if len(samples) >= min(rules.min_samples, rules.max_rounds) and spent > rules.budget_s:
            series[name].stop = f"budget: sat out after {len(samples)} rounds"
            del active[name]
    return len(active) < before


def _why_stop(
    active: Mapping[str, Launch],
    series: Mapping[str, Series],
    rules: MeasureSettings,
    discarded: int,
    elapsed: float,
) -> str | None:
    counts = [len(series[name].samples) for name in active]
    if not counts:
        return None
    kept = min(counts)
    if kept >= rules.max_rounds:
        return "max_rounds"
    # Rounds lost to heat count here, or a hot chip would be measured for ever.
    if elapsed > rules.timeout_s and kept + discarded >= min(rules.min_samples, rules.max_rounds):
        return "timeout"
    if kept < rules.min_rounds:
        return None
    widths = [median_rel_ci([sample.ms for sample in series[name].samples]) for name in active]
    return "precise" if max(widths) <= rules.target_rel_ci else None

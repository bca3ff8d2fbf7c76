"""Rounds, stop rules, budgets and throttling, on a device whose clock the tests own."""

import random

import pytest

from ffpa.measure.rounds import Series, median_rel_ci, run_rounds, warm_up
from ffpa.measure.telemetry import State
from ffpa.measure.timer import Sample
from ffpa.settings import MeasureSettings

THERMAL, POWER_CAP = State(reasons=0x20), State(reasons=0x4)


class FakeDevice:
    """A timer whose launches take the time they say, on a clock that only it moves."""

    def __init__(self, states=()):
        self.now = 0.0
        self.log = []
        self.slept = 0.0
        self._states = dict(states)  # index of the sample -> state

    def launch(self, name, ms, noise=0.0, fails_after=None):
        generator = random.Random(name)
        calls = 0

        def run():
            nonlocal calls
            calls += 1
            if fails_after is not None and calls > fails_after:
                raise MemoryError("gone")
            self.log.append(name)
            return ms * (1 + noise * generator.uniform(-1, 1))

        return run

    def sample(self, launch):
        state = self._states.get(len(self.log), State(reasons=0))
        ms = launch()
        self.now += ms / 1000
        return Sample(ms, state)

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.slept += seconds
        self.now += seconds

    def run(self, launches, rules, seed=0, **options):
        return run_rounds(
            launches,
            self,
            rules,
            seed,
            classify=lambda name, error: ("oom", f"{name}: {error}"),
            clock=self.clock,
            sleep=self.sleep,
            **options,
        )


def rules(**changes):
    return MeasureSettings(**{"budget_s": 1e9, "timeout_s": 1e9, **changes})


def test_everyone_runs_once_a_round_in_shuffled_order():  # M02
    device = FakeDevice()
    launches = {name: device.launch(name, 1.0) for name in "abcd"}
    outcome = device.run(launches, rules(min_rounds=20))
    rounds = [tuple(device.log[i : i + 4]) for i in range(0, len(device.log), 4)]
    assert all(sorted(names) == list("abcd") for names in rounds)
    assert len(set(rounds)) > 5
    assert {len(series.samples) for series in outcome.series.values()} == {len(rounds)}


def test_the_order_follows_the_seed():
    def order(seed):
        device = FakeDevice()
        device.run({name: device.launch(name, 1.0) for name in "abcd"}, rules(), seed=seed)
        return device.log

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_stops_at_min_rounds_when_precise():
    device = FakeDevice()
    outcome = device.run({"a": device.launch("a", 5.0)}, rules(min_rounds=20))
    assert len(outcome.series["a"].samples) == 20
    assert outcome.series["a"].stop == "precise"


def test_goes_on_while_one_is_noisy():
    device = FakeDevice()
    launches = {"calm": device.launch("calm", 5.0), "noisy": device.launch("noisy", 5.0, 0.3)}
    outcome = device.run(launches, rules(min_rounds=20, max_rounds=50))
    assert [len(series.samples) for series in outcome.series.values()] == [50, 50]
    assert outcome.series["calm"].stop == "max_rounds"


def test_times_out_with_at_least_ten_samples():
    # Case M11: a 50 ms launch under a budget of milliseconds still gets its ten samples.
    device = FakeDevice()
    outcome = device.run({"a": device.launch("a", 50.0, 0.3)}, rules(timeout_s=0.01))
    assert len(outcome.series["a"].samples) == 10
    assert outcome.series["a"].stop == "timeout"


def test_a_slow_contestant_sits_out_after_ten_samples():
    device = FakeDevice()
    launches = {"slow": device.launch("slow", 1000.0), "fast": device.launch("fast", 1.0, 0.2)}
    outcome = device.run(launches, rules(budget_s=2.0, max_rounds=60))
    slow, fast = outcome.series["slow"], outcome.series["fast"]
    assert (len(slow.samples), len(fast.samples)) == (10, 60)
    assert slow.stop == "budget: sat out after 10 rounds"
    assert fast.stop == "max_rounds"
    assert device.log.count("slow") == 10


def test_the_time_of_a_slow_contestant_is_not_held_against_the_others():
    device = FakeDevice()
    launches = {"slow": device.launch("slow", 2000.0), "fast": device.launch("fast", 1.0)}
    outcome = device.run(launches, rules(budget_s=2.0, timeout_s=10.0, min_rounds=30))
    assert device.now > 20
    assert (len(outcome.series["fast"].samples), outcome.series["fast"].stop) == (30, "precise")


def test_ends_when_all_have_used_their_budget():
    device = FakeDevice()
    outcome = device.run({"a": device.launch("a", 500.0, 0.3)}, rules(budget_s=2.0))
    assert len(outcome.series["a"].samples) == 10
    assert outcome.series["a"].stop.startswith("budget")


def test_a_hot_round_is_dropped_for_all():
    device = FakeDevice(states={2: THERMAL})  # the third sample: round 2 of two contestants
    launches = {name: device.launch(name, 1.0) for name in "ab"}
    outcome = device.run(launches, rules(min_rounds=20))
    assert outcome.discarded == 1
    assert outcome.discard_reason == "software thermal slowdown"
    assert [len(series.samples) for series in outcome.series.values()] == [20, 20]
    assert device.log.count("a") == device.log.count("b") == 21
    assert device.slept > 0
    assert not outcome.throttled


def test_the_power_cap_is_recorded_and_kept():  # M02
    device = FakeDevice(states=dict.fromkeys(range(100), POWER_CAP))
    outcome = device.run({"a": device.launch("a", 1.0)}, rules(min_rounds=20))
    assert outcome.discarded == 0
    assert outcome.series["a"].power_capped == 20


def test_a_chip_that_stays_hot_ends_by_the_timeout():
    device = FakeDevice(states=dict.fromkeys(range(10_000), THERMAL))
    outcome = device.run({"a": device.launch("a", 1.0)}, rules(timeout_s=5.0))
    assert outcome.series["a"].samples == []
    assert outcome.throttled


def test_many_hot_rounds_flag_the_point():
    device = FakeDevice(states=dict.fromkeys(range(5), THERMAL))
    outcome = device.run({"a": device.launch("a", 1.0)}, rules(min_rounds=20))
    assert (outcome.discarded, len(outcome.series["a"].samples)) == (5, 20)
    assert outcome.throttled


def test_a_failure_ends_one_contestant_only():
    device = FakeDevice()
    launches = {"good": device.launch("good", 1.0), "bad": device.launch("bad", 1.0, 0, 3)}
    outcome = device.run(launches, rules(min_rounds=20))
    assert outcome.series["bad"].failure == ("oom", "bad: gone")
    assert outcome.series["good"].failure is None
    assert len(outcome.series["good"].samples) == 20


def test_states_are_summed_up_by_their_median():  # M02
    states = {i: State(sm_clock_mhz=1000 + i, power_w=None, reasons=0) for i in range(20)}
    device = FakeDevice(states)
    series = device.run({"a": device.launch("a", 1.0)}, rules(min_rounds=20)).series["a"]
    assert series.median_state("sm_clock_mhz") == 1009.5
    assert series.median_state("power_w") is None


def test_repeated_launches_and_late_samples_are_counted():
    samples = [
        Sample(1.0, State(), repeated=2),
        Sample(1.0, State()),
        Sample(1.0, State(), late=True),
    ]
    series = Series(samples)
    assert (series.requeued, series.late) == (2, 1)


def test_warm_up_lasts_its_seconds_and_takes_turns():  # M01
    device = FakeDevice()
    launches = {name: device.launch(name, 10.0) for name in "ab"}
    warm_up(launches, device, 0.095, clock=device.clock)
    assert device.log == list("ab") * 5


def test_warm_up_of_nobody_ends():
    device = FakeDevice()
    warm_up({}, device, 1.0, clock=device.clock)
    assert device.log == []


def test_interval_of_the_median():
    assert median_rel_ci([1.0] * 5) == float("inf")
    assert median_rel_ci([2.0] * 20) == 0.0
    # 20 samples: 1.96 sd of the rank is 4.4, so the interval runs from the 6th to the 15th.
    assert median_rel_ci([float(i) for i in range(1, 21)]) == pytest.approx((15 - 6) / 2 / 10.5)


def test_interval_covers_the_median_as_often_as_it_says():
    generator = random.Random(0)
    hits = 0
    for _ in range(2000):
        samples = sorted(generator.gauss(0, 1) for _ in range(40))
        width = median_rel_ci([sample + 100 for sample in samples])
        median = (samples[19] + samples[20]) / 2 + 100
        hits += abs(median - 100) <= width * median
    assert 0.90 < hits / 2000 < 0.99

"""Medians, ratios and their bootstrap intervals."""

import numpy as np
import pytest

from ffpa.report import statistics


def noisy(centre: float, count: int = 40, seed: int = 0, spread: float = 0.02) -> list[float]:
    return list(centre * np.random.default_rng(seed).normal(1, spread, size=count))


def test_interval_holds_the_median_and_narrows_with_samples() -> None:
    few, many = (statistics.median([noisy(10.0, count)]) for count in (10, 400))
    for estimate in (few, many):
        assert estimate.low < estimate.value < estimate.high
    assert many.high - many.low < few.high - few.low
    assert (many.samples, many.processes) == (400, 1)


def test_same_samples_give_the_same_bounds() -> None:
    assert statistics.median([noisy(10.0)]) == statistics.median([noisy(10.0)])


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(100):
        estimate = statistics.median([noisy(10.0, 40, seed)])
        hits += estimate.low <= 10.0 <= estimate.high
    assert 85 <= hits <= 100


def test_pairing_cancels_the_drift_that_hits_both() -> None:
    drift = np.linspace(1, 2, 40)
    kernel, baseline = drift * noisy(5.0, seed=1), drift * noisy(10.0, seed=2)
    paired = statistics.median([statistics.round_ratios(baseline, kernel)])
    unpaired = statistics.unpaired_ratio([baseline], [kernel])
    assert paired.low < 2 < paired.high
    assert paired.high - paired.low < (unpaired.high - unpaired.low) / 3


def test_pairs_are_cut_to_the_rounds_that_both_were_in() -> None:
    # The later rounds of the baseline have no partner and must not move the ratio.
    ratios = statistics.round_ratios([10.0] * 20 + [99.0] * 20, [5.0] * 20)
    estimate = statistics.median([ratios])
    assert (estimate.value, estimate.low, estimate.high, estimate.samples) == (2, 2, 2, 20)


HOT = {"first": 1.0, "second": 0.94, "third": 1.06}  # how fast the chip is in each process


def two_shapes(second: float) -> tuple[statistics.Runs, statistics.Runs]:
    """Rates of one contestant at two shapes, of 100 and `second`, in processes that differ."""
    rates = [
        {process: noisy(speed * rate, 30 + 9 * place, seed, 0.01)
         for seed, (process, speed) in enumerate(HOT.items(), start=3 * place)}
        for place, rate in enumerate((100.0, second))
    ]  # fmt: skip
    return rates[0], rates[1]


def test_what_a_process_as_a_whole_meets_cancels() -> None:
    first, second = two_shapes(90.0)
    shared = statistics.shared_ratio(second, first)
    unpaired = statistics.unpaired_ratio(list(second.values()), list(first.values()))
    assert shared and shared.low < 0.9 < shared.high
    assert shared.high - shared.low < (unpaired.high - unpaired.low) / 5
    assert unpaired.low < 0.85 < shared.low  # the bound that drift alone reaches over
    assert shared.processes == 3


def test_a_real_difference_between_shapes_is_seen() -> None:
    shared = statistics.shared_ratio(*reversed(two_shapes(84.0)))
    assert shared and shared.high < 0.85


def test_a_process_that_differs_in_one_shape_alone_widens_the_interval() -> None:
    first, second = two_shapes(90.0)
    second = {**second, "third": [0.9 * rate for rate in second["third"]]}
    shared = statistics.shared_ratio(second, first)
    assert shared and shared.low < 0.82 and shared.high > 0.89


def test_only_processes_that_measured_both_count() -> None:
    first, second = two_shapes(90.0)
    alone = {**second, "fourth": [1.0] * 30}
    assert statistics.shared_ratio(alone, first) == statistics.shared_ratio(second, first)
    assert statistics.shared_ratio({"fourth": [1.0]}, first) is None


def test_shared_ratio_covers_the_truth_about_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(100):
        first, second = ({"run": noisy(rate, 40, 2 * seed + place)}
                         for place, rate in enumerate((10.0, 9.0)))  # fmt: skip
        estimate = statistics.shared_ratio(second, first)
        assert estimate
        hits += estimate.low <= 0.9 <= estimate.high
    assert 85 <= hits <= 100


def test_processes_that_disagree_widen_the_interval() -> None:
    agreeing = statistics.median([noisy(10.0, seed=seed) for seed in range(3)])
    apart = statistics.median([noisy(10.0 + seed, seed=seed) for seed in range(3)])
    assert agreeing.high - agreeing.low < 0.3
    assert apart.low < 10.2 and apart.high > 11.8
    assert apart.value == pytest.approx(11.0, rel=0.02)


def test_rate_swaps_the_bounds_of_a_time() -> None:
    rate = statistics.Estimate(2.0, 1.0, 4.0, 10, 1).inverse(8.0)
    assert (rate.value, rate.low, rate.high) == (4.0, 2.0, 8.0)


def test_one_sample_has_no_width() -> None:
    assert statistics.median([[3.0]])[:3] == (3.0, 3.0, 3.0)

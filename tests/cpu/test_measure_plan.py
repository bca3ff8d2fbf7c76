"""Forecasts, resuming, ceilings and what the terminal shows."""

from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console

from ffpa.measure import engines
from ffpa.measure.ceiling import check_possible, dense_peak_tflops, matmul_launch
from ffpa.measure.contestants import Contestant
from ffpa.measure.cpu import small
from ffpa.measure.identity import Provenance, identity, shape_of
from ffpa.measure.inputs import make_inputs
from ffpa.measure.plan import forecast, is_recorded, spread, still_holds
from ffpa.measure.shape import Shape
from ffpa.measure.show import results_table, speedup
from ffpa.record import Row, iqr_of, median_of
from ffpa.settings import MeasureSettings, Settings

HERE = Provenance("run", "a" * 64, "b" * 64)
KERNEL, BASELINE = Contestant("split_d-sm80", "f32"), Contestant("sdpa-efficient")


def row(contestant, samples, settings=None, **changes):
    settings = settings or Settings()
    common = identity(settings, shape_of(settings), HERE)
    timed = {}
    if samples:
        timed = {
            "median_ms": median_of(samples),
            "iqr_ms": iqr_of(samples),
            "tflops": 100.0,
            "rounds": len(samples),
        }
    fields = {"kernel": contestant.kernel, "acc": contestant.acc, "backend": "x", "status": "ok"}
    return Row(**{**common, **fields, **timed, "samples_ms": samples, **changes})


def test_a_point_is_recorded_when_all_its_contestants_are():
    rows = [row(KERNEL, [1.0]), row(BASELINE, [2.0])]
    assert is_recorded(Settings(), [KERNEL, BASELINE], rows, HERE)
    assert not is_recorded(Settings(), [KERNEL, BASELINE], rows[:1], HERE)


@pytest.mark.parametrize(
    "changes",
    [
        {"d": 576},
        {"n": 4096},
        {"causal": True},
        {"seed": 1},
        {"hkv": 8},
        {"measure": MeasureSettings(input_scale=4)},
        {"measure": MeasureSettings(value_mean=1)},
    ],
)
def test_another_point_is_not_recorded(changes):
    rows = [row(KERNEL, [1.0])]
    assert not is_recorded(Settings(**changes), [KERNEL], rows, HERE)


def test_other_sources_or_machines_do_not_count():
    rows = [row(KERNEL, [1.0])]
    assert not is_recorded(Settings(), [KERNEL], rows, replace(HERE, source_hash="c" * 64))
    assert not is_recorded(Settings(), [KERNEL], rows, replace(HERE, env_hash="c" * 64))


def test_a_throttled_point_is_tried_again():
    rows = [row(KERNEL, [1.0], status="throttled", reason="heat")]
    assert not is_recorded(Settings(), [KERNEL], rows, HERE)


def test_a_shape_is_stale_without_rows_or_with_a_kernel_that_changed():
    ours, baseline = row(KERNEL, [1.0]), row(BASELINE, [2.0])
    assert still_holds(Settings(), [ours, baseline], lambda one: one is ours)
    assert not still_holds(Settings(), [ours, baseline], lambda one: False)
    assert not still_holds(Settings(n=4096), [ours, baseline], lambda one: True)
    newer = row(KERNEL, [1.0])
    assert still_holds(Settings(), [ours, newer], lambda one: one is newer)
    assert not still_holds(Settings(), [newer, ours], lambda one: one is newer)


def test_a_forecast_uses_what_was_recorded():
    slow = [row(KERNEL, [9000.0])]
    unknown, known = (forecast(Settings(), [KERNEL], rows) for rows in ([], slow))
    assert known.seconds > 12 * 9.0 > unknown.seconds


def test_a_forecast_counts_memory():
    settings = Settings(h=32, n=8192, d=512)
    inputs = 4 * 2 * 32 * 8192 * 512
    assert forecast(settings, [KERNEL], []).gpu_bytes == inputs
    math = forecast(settings, [KERNEL, Contestant("sdpa-math")], []).gpu_bytes
    assert math == inputs + 12 * 32 * 8192**2


def test_a_forecast_leaves_out_what_refused_when_it_was_recorded():
    refusal = row(BASELINE, [], status="unsupported", reason="too wide")
    both = [KERNEL, BASELINE]
    assert forecast(Settings(), both, [refusal]) == forecast(Settings(), [KERNEL], [refusal])
    assert forecast(Settings(), both, [refusal, row(BASELINE, [9000.0])]).seconds > 9.0


def test_a_forecast_leaves_out_what_does_not_fit():
    everyone = [KERNEL, Contestant("sdpa-math")]
    fits = forecast(Settings(n=8192), everyone, [])
    assert fits.gpu_bytes > forecast(Settings(n=8192), [KERNEL], []).gpu_bytes
    too_long = Settings(n=32768)
    assert forecast(too_long, everyone, []) == forecast(too_long, [KERNEL], [])


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0, range(12)), (1, [0]), (2, [0, 11]), (3, [0, 6, 11]), (12, range(12)), (99, range(12))],
)
def test_a_sweep_is_thinned_evenly(limit, expected):
    points = [Settings(seed=number) for number in range(12)]
    assert [point.seed for point in spread(points, limit)] == list(expected)


def test_the_cpu_model_gets_a_small_problem_of_the_same_kind():
    settings = small(Settings(b=4, h=32, hkv=8, n=8192, nk=100, d=576, causal=True))
    assert str(shape_of(settings)) == "D=576 B=1 H=2/1 N=128x100 fp16 causal"
    assert small(Settings(h=1, n=64)) == replace(Settings(h=1, n=64), hkv=1, nk=64)


@pytest.mark.parametrize("nheads_kv", [4, 2, 1])
def test_the_ceiling_does_both_products(monkeypatch, nheads_kv):
    shape = Shape(2, 4, nheads_kv, 24, 40, 64)
    # Two heads of scores at a time, so that the last turn is a partial one for 2 x 4 heads.
    rows = shape.nheads_q // nheads_kv * 24
    monkeypatch.setattr("ffpa.measure.ceiling.SCORE_BYTES", 3 * 2 * rows * 40)
    inputs = make_inputs(shape, torch.device("cpu"), seed=0)
    outputs = []
    empty_like = torch.empty_like
    monkeypatch.setattr(
        torch, "empty_like", lambda tensor: outputs.append(empty_like(tensor)) or outputs[-1]
    )
    launch, flops = matmul_launch(inputs)
    launch()
    assert flops == 4 * 2 * 4 * 24 * 40 * 64
    key, value = (
        tensor.float().repeat_interleave(4 // nheads_kv, 1) for tensor in (inputs.key, inputs.value)
    )
    expected = inputs.query.float() @ key.transpose(2, 3) / 8 @ value
    torch.testing.assert_close(outputs[0].float().view_as(expected), expected, atol=0.1, rtol=0.01)


def test_the_recorded_build_tells_the_shared_memory_of_a_cta(monkeypatch):
    costs = {"registers": 168, "static_smem_bytes": 16}
    monkeypatch.setattr(engines.ffpa, "kernels", lambda: [{"name": "x", "smem_bytes": 1000}])
    build = engines.with_shared_memory({"archs": ["90a"], "kernels": {"x": {"90a": costs}}})
    assert build == {"archs": ["90a"], "kernels": {"x": {"90a": costs | {"smem_bytes": 1016}}}}


def test_the_dense_peak_of_an_h200():  # M06
    # 132 SMs x 4096 x 1.83 GHz is the 989 TFLOP/s of the data sheet; sparsity would double it.
    assert dense_peak_tflops((9, 0), 132, 1830) == pytest.approx(989, abs=1)
    assert dense_peak_tflops((8, 0), 108, 1410) == pytest.approx(312, abs=1)
    assert dense_peak_tflops((7, 5), 40, 1500) is None
    assert dense_peak_tflops((9, 0), 132, None) is None


def test_a_possible_rate_passes():
    check_possible("x", 980.0, 989.0)
    check_possible("x", 1e9, None)


def test_a_speedup_is_the_median_of_ratios_of_rounds():
    # The medians are 2 and 6; the ratios of the rounds 3, 1, 6, over the rounds that both have.
    ours, theirs = row(KERNEL, [1.0, 6.0, 2.0]), row(BASELINE, [3.0, 6.0, 12.0, 6.0])
    assert speedup(ours, theirs) == 3.0
    assert speedup(ours, None) is None


def test_the_table_shows_refusals_and_leaves_out_what_nobody_has():
    refused = row(BASELINE, [], status="unsupported", reason="too wide")
    text = StringIO()
    Console(file=text, width=120).print(results_table("D=512", [row(KERNEL, [1.0]), refused]))
    assert "unsupported: too wide" in text.getvalue()
    assert "TFLOP/s" in text.getvalue()
    assert "vs EA" not in text.getvalue()

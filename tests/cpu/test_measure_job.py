"""A whole point on a device that is the CPU: real inputs, launches, oracle and times."""

import random
import time
from dataclasses import replace

import pytest
import torch

from ffpa.baselines import BASELINES
from ffpa.extension import Instance
from ffpa.measure import contestants as contestants_module
from ffpa.measure.ceiling import ImpossibleResultError
from ffpa.measure.contestants import Contestant, contestants_of
from ffpa.measure.faults import DeviceLostError, classify, short_reason
from ffpa.measure.identity import Provenance
from ffpa.measure.job import Session, measure_point
from ffpa.measure.telemetry import State
from ffpa.measure.timer import Sample
from ffpa.numerics import attention_model
from ffpa.settings import MeasureSettings, Settings, SettingsError
from ffpa.support import DeviceLimits, Support

HASH = "0" * 64
CEILING = Contestant("ceiling-matmul")
MATH = Contestant("sdpa-math")
KERNEL = Contestant("split_d-sm80", "f32")


# Every round that may be run is run, however slow the host is.
RULES = MeasureSettings(warmup_s=0.01, max_rounds=25, timeout_s=3600)


class ScatteredTimer:
    """Launches, and gives times that use up no budget and scatter too much to be precise."""

    def __init__(self):
        self._times = random.Random(0)

    def sample(self, launch):
        launch()
        return Sample(self._times.uniform(0.01, 0.02), State())


class CpuDevice:
    """The CPU as a device, with as much memory as a test says."""

    where = torch.device("cpu")
    limits = DeviceLimits((9, 0), 232448)

    def __init__(self, memory=2**40, peak_tflops=None):
        self._memory = memory
        self.peak_tflops = peak_tflops

    def free_memory(self):
        return self._memory

    def release(self):
        pass

    def finish(self):
        pass

    def timer(self, *, cold):
        return ScatteredTimer()


@pytest.fixture
def kernel(monkeypatch):
    """The CPU model in the place of a compiled kernel; `kernel.run` can be replaced."""

    class Kernel:
        run = staticmethod(
            lambda query, key, value, is_causal, acc, **rest: attention_model(
                query, key, value, acc=acc, is_causal=is_causal
            )
        )

    def find(problem, limits, name, variant=""):
        if problem.headdim > 128:
            return Support(reason="too wide for this test")
        instance = Instance(name=f"{name}/d{problem.headdim}/{problem.dtype}/{problem.acc}")
        return Support(instance)

    monkeypatch.setattr(contestants_module, "find", find)
    monkeypatch.setattr(
        contestants_module,
        "attention",
        lambda *tensors, **options: Kernel.run(*tensors, **options),
    )
    return Kernel


def point(**changes):
    return replace(Settings(h=4, hkv=2, n=48, nk=64, d=64, measure=RULES), **changes)


def rows_of(contestants, device=None, **changes):
    session = Session(Provenance("run", HASH, HASH), device or CpuDevice())
    rows = measure_point(point(**changes), contestants, session)
    return {row.kernel: row for row in rows}


def test_all_contestants_get_times_and_errors(kernel):
    rows = rows_of([KERNEL, MATH, CEILING])
    assert [row.status for row in rows.values()] == ["ok"] * 3
    assert {(row.rounds, row.stop) for row in rows.values()} == {(25, "max_rounds")}
    assert {(row.requeued, row.late) for row in rows.values()} == {(0, 0)}
    assert rows["split_d-sm80"].backend == "split_d-sm80/d64/fp16/f32"
    assert rows["sdpa-math"].backend == "torch math, key and value repeated beforehand"
    assert 0 < rows["sdpa-math"].err_rel < 2e-3
    assert 0 < rows["split_d-sm80"].err_rel < 2e-3
    assert rows["ceiling-matmul"].err_rel is None


def test_a_second_launch_is_compared_bit_by_bit(kernel):
    rows = rows_of([KERNEL, MATH, CEILING])
    assert rows["split_d-sm80"].repeats is True
    assert rows["sdpa-math"].repeats is None and rows["ceiling-matmul"].repeats is None
    steady, launches = kernel.run, []

    def unsteady(*tensors, **options):
        launches.append(1)
        output = steady(*tensors, **options)
        output.view(-1)[0] += len(launches) * 2**-10
        return output

    kernel.run = staticmethod(unsteady)
    row = rows_of([KERNEL])["split_d-sm80"]
    assert row.repeats is False and row.status == "ok"


def test_rates_are_work_over_the_median(kernel):
    row = rows_of([MATH])["sdpa-math"]
    flops = 4 * 4 * 48 * 64 * 64
    assert row.tflops == pytest.approx(flops / row.median_ms / 1e9, rel=1e-5)


def test_the_ceiling_counts_its_own_work_not_the_masks(kernel):
    full, causal = (rows_of([CEILING], causal=flag)["ceiling-matmul"] for flag in (False, True))
    assert full.tflops * full.median_ms == pytest.approx(causal.tflops * causal.median_ms, rel=1e-5)


def test_the_square_product_counts_its_own_work(kernel, monkeypatch):
    monkeypatch.setattr("ffpa.measure.ceiling.SIDE", 96)
    monkeypatch.setattr("ffpa.measure.contestants.SQUARE_FLOPS", 2 * 96**3)
    row = rows_of([Contestant("ceiling-square")])["ceiling-square"]
    assert (row.status, row.backend, row.err_rel) == ("ok", "torch.mm", None)
    assert row.tflops * row.median_ms == pytest.approx(2 * 96**3 / 1e9, rel=1e-5)


def test_the_square_product_comes_where_it_is_asked_for():
    wanted = [contestants_of(point(kernels={}, baselines={}, measure=MeasureSettings(
        ceiling=False, square=square)), []) for square in (False, True)]  # fmt: skip
    assert wanted == [[], [Contestant("ceiling-square")]]


def test_the_copy_moves_as_many_bytes_as_attention_reads_and_is_no_rate_to_check(kernel):
    row = rows_of([Contestant("ceiling-copy")], CpuDevice(peak_tflops=1e-9))["ceiling-copy"]
    assert (row.status, row.backend, row.err_rel) == ("ok", "torch copy of key", None)
    assert row.tflops * row.median_ms == pytest.approx(4 * 4 * 48 * 64 * 64 / 1e9, rel=1e-5)


def test_causal_and_grouped_heads_pass_the_gate(kernel):
    rows = rows_of([KERNEL, MATH], causal=True)
    assert [row.status for row in rows.values()] == ["ok", "ok"]


def test_a_refusal_is_a_row_with_its_reason(kernel):
    rows = rows_of([KERNEL, Contestant("sdpa-flash"), MATH], d=256)
    refused = rows["split_d-sm80"]
    assert (refused.status, refused.reason) == ("unsupported", "too wide for this test")
    assert rows["sdpa-flash"].status == "unsupported"
    assert (refused.samples_ms, refused.tflops, refused.err_rel) == ([], None, None)
    assert rows["sdpa-math"].status == "ok"


def test_a_wrong_result_keeps_its_time(kernel):
    kernel.run = staticmethod(lambda query, key, value, **rest: torch.zeros_like(query))
    row = rows_of([KERNEL, MATH])["split_d-sm80"]
    assert row.status == "wrong_result"
    assert "above the bound" in row.reason
    assert row.rounds == 25
    assert row.err_rel == 1.0


def test_nan_is_a_wrong_result(kernel):
    kernel.run = staticmethod(lambda query, key, value, **rest: query * torch.nan)
    row = rows_of([KERNEL])["split_d-sm80"]
    assert (row.status, row.reason) == ("wrong_result", "the output holds NaN or infinity")
    assert row.err_rel is None


def test_out_of_memory_ends_one_contestant(kernel):
    def run(query, key, value, **rest):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB. GPU 0 ...")

    kernel.run = staticmethod(run)
    rows = rows_of([KERNEL, MATH])
    assert rows["split_d-sm80"].status == "oom"
    assert rows["split_d-sm80"].reason == "out of memory allocating 64.00 GiB"
    assert rows["sdpa-math"].status == "ok"


def test_what_cannot_fit_is_not_tried(kernel):
    # Case M10: the score matrix of the math baseline.
    rows = rows_of([KERNEL, MATH], device=CpuDevice(memory=1000))
    assert rows["sdpa-math"].status == "oom"
    assert rows["sdpa-math"].reason.startswith("needs 0.0 GiB")
    assert rows["split_d-sm80"].status == "ok"


def test_a_launch_error_of_ours_is_a_wrong_result(kernel):
    def run(query, key, value, **rest):
        raise RuntimeError("split_d-sm80: invalid argument")

    kernel.run = staticmethod(run)
    row = rows_of([KERNEL])["split_d-sm80"]
    assert row.status == "wrong_result"
    assert row.reason == "the launch failed: split_d-sm80: invalid argument"


def test_a_lost_device_ends_the_point(kernel):
    class Lost(CpuDevice):
        def finish(self):
            raise DeviceLostError("the CUDA context is lost")

    with pytest.raises(DeviceLostError):
        rows_of([KERNEL, MATH], device=Lost())


def test_a_rate_above_the_peak_fails_the_run(kernel):
    # Case M05.
    with pytest.raises(ImpossibleResultError, match="above the device's dense peak"):
        rows_of([MATH], device=CpuDevice(peak_tflops=1e-9))


def test_a_launch_beyond_the_limit_is_left_out(kernel):
    rules = replace(RULES, launch_timeout_s=1)

    def run(query, key, value, **rest):
        time.sleep(1.3)
        return attention_model(query, key, value)

    kernel.run = staticmethod(run)
    rows = rows_of([KERNEL, MATH], measure=rules)
    assert rows["split_d-sm80"].status == "timeout"
    assert rows["split_d-sm80"].samples_ms == []
    assert rows["sdpa-math"].status == "ok"


def test_compiling_is_not_taken_for_a_slow_launch(monkeypatch):
    rules = replace(RULES, launch_timeout_s=1)
    compiling = [1.3]
    math = BASELINES["sdpa-math"]

    def prepare(inputs):
        prepared = math.prepare(inputs)

        def launch():
            time.sleep(compiling.pop() if compiling else 0)
            return prepared.launch()

        return replace(prepared, launch=launch)

    monkeypatch.setitem(BASELINES, "sdpa-math", replace(math, prepare=prepare))
    assert rows_of([MATH], measure=rules)["sdpa-math"].status == "ok"


def test_contestants_follow_the_settings():
    settings = point(
        acc={"f16": True, "f32": True, "f16f32": False},
        kernels={"shipped": True, "naive": False},
        baselines={"sdpa-math": True, "flex": False},
    )
    found = contestants_of(settings, ["naive", "split_d-sm80", "split_d-sm80"])
    assert [one.label for one in found] == [
        "split_d-sm80 f16",
        "split_d-sm80 f32",
        "sdpa-math",
        "ceiling-matmul",
        "ceiling-copy",
    ]


@pytest.mark.parametrize("n, labels", [(16, ["split_kv-sm80 f32"]), (17, [])])
def test_the_kernel_for_few_queries_comes_with_few_queries(n, labels):
    settings = point(n=n, h=64, acc={"f32": True}, kernels={"shipped": True}, baselines={})
    found = contestants_of(settings, ["naive", "split_kv-sm80"])
    assert [one.label for one in found if one.ours] == labels
    assert (Contestant("ceiling-copy") in found) == bool(labels)  # bandwidth limits these alone


def test_the_naive_kernel_comes_once():
    settings = point(acc={"f16": True, "f32": True}, kernels={"naive": True})
    assert [one.acc for one in contestants_of(settings, []) if one.ours] == ["f32"]


def test_all_kernels_and_variants():
    settings = point(
        acc={"f32": True},
        kernels={"all": True, "split_d-sm80/stages1": True},
        measure=MeasureSettings(ceiling=False),
    )
    found = contestants_of(settings, ["naive", "split_d-sm80"])
    assert [(one.kernel, one.variant) for one in found] == [
        ("naive", ""),
        ("split_d-sm80", ""),
        ("split_d-sm80", "stages1"),
    ]


def test_an_unknown_baseline_lists_the_known_ones():
    with pytest.raises(SettingsError, match="give one of sdpa-efficient"):
        contestants_of(point(baselines={"sdpa": True}), [])


def test_reasons_hold_no_paths():
    error = RuntimeError("cannot open /home/someone/cache/kernel.so: no such file\nsecond line")
    assert short_reason(error) == "cannot open kernel.so: no such file"


def test_an_error_of_a_baseline_is_a_refusal():
    assert classify(RuntimeError("No available kernel"), ours=False) == (
        "unsupported",
        "No available kernel",
    )

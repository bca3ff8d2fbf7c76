"""The timer against another harness, and run.py from start to rows."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import ffpa
from ffpa.measure.device import CudaDevice
from ffpa.measure.rounds import run_rounds, warm_up
from ffpa.measure.telemetry import Telemetry
from ffpa.measure.timer import CudaTimer
from ffpa.record import load_environments, load_rows
from ffpa.record.nvml import Nvml
from ffpa.settings import MeasureSettings

pytestmark = pytest.mark.gpu

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "run.py"


def median_ms(launch, *, cold, samples=30):
    timer = CudaTimer(torch.device("cuda", 0), Telemetry(None), cold=cold)
    for _ in range(5):
        timer.sample(launch)
    return statistics.median(timer.sample(launch).ms for _ in range(samples))


def test_the_timer_agrees_with_triton():
    testing = pytest.importorskip("triton.testing")
    matrix = torch.randn(4096, 4096, dtype=torch.float16, device="cuda")

    def launch():
        return matrix @ matrix

    theirs = testing.do_bench(launch, return_mode="median")
    assert median_ms(launch, cold=True) == pytest.approx(theirs, rel=0.15)


def test_a_cold_sample_reads_from_memory():  # M03
    # Half of the cache, which a warm repeat finds there.
    size = torch.cuda.get_device_properties(0).L2_cache_size // 4
    source = torch.ones(size, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    warm, cold = (median_ms(lambda: target.copy_(source), cold=flag) for flag in (False, True))
    assert cold > 1.1 * warm


def test_a_short_launch_is_timed_without_the_host():
    # An empty-handed launch takes microseconds; the host needs tens to queue it.
    one = torch.zeros(1, device="cuda")
    assert median_ms(one.zero_, cold=False) < 0.02


def test_a_slow_host_stays_out_of_the_samples():
    # The host takes longer than the first spin at any clock, and less than the longest.
    timer = CudaTimer(torch.device("cuda", 0), Telemetry(None), cold=False)
    one = torch.zeros(1, device="cuda")

    def launch():
        time.sleep(2e-3)
        one.zero_()

    samples = [timer.sample(launch) for _ in range(30)]
    assert samples[0].repeated >= 2 and not any(sample.late for sample in samples)
    assert statistics.median(sample.ms for sample in samples) < 0.02
    assert sum(sample.repeated for sample in samples[1:]) < 30  # the longer spin is kept


def test_a_launch_that_waits_for_the_device_is_late():
    timer = CudaTimer(torch.device("cuda", 0), Telemetry(None), cold=False)
    assert timer.sample(torch.cuda.synchronize).late
    assert not timer.sample(torch.zeros(1, device="cuda").zero_).late


def test_a_busy_chip_tells_its_clock():
    nvml, reason = Nvml.open(0)
    if nvml is None:
        pytest.skip(reason)
    telemetry = Telemetry(nvml)
    matrix = torch.randn(8192, 8192, dtype=torch.float16, device="cuda")
    for _ in range(20):
        matrix @ matrix
    state = telemetry.read()
    torch.cuda.synchronize()
    assert 0 < state.sm_clock_mhz <= telemetry.max_sm_clock_mhz()
    assert CudaDevice(0, telemetry).peak_tflops is None or state.reasons is not None


def attentions(heads, seqlen, headdim):
    """Ours and SDPA EA on the same normal inputs."""
    q, k, v = (
        torch.randn(1, heads, seqlen, headdim, dtype=torch.float16, device="cuda") for _ in range(3)
    )

    def efficient():
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return functional.scaled_dot_product_attention(q, k, v)

    return {"ours": lambda: ffpa.attention(q, k, v), "efficient": efficient}


def rounds_of(launches, *, count, warmup_s):
    """The series of each, `count` rounds long, after so many seconds of warm-up."""
    timer = CudaTimer(torch.device("cuda", 0), Telemetry(Nvml.open(0)[0]), cold=True)
    rules = MeasureSettings(min_rounds=count, max_rounds=count, budget_s=1e9, timeout_s=120)
    warm_up(launches, timer, warmup_s, clock=time.monotonic)

    def unexpected(name, error):
        raise error

    outcome = run_rounds(launches, timer, rules, 0, classify=unexpected)
    assert outcome.kept == count
    return outcome.series


def test_a_short_warm_up_gives_the_times_of_a_long_one():  # M01
    launches = attentions(heads=8, seqlen=256, headdim=64)
    time.sleep(2.0)  # so that the clocks fall
    short = rounds_of(launches, count=200, warmup_s=0.005)
    long = rounds_of(launches, count=200, warmup_s=0.5)
    for name in launches:
        medians = [statistics.median(one[name].samples_ms) for one in (short, long)]
        assert medians[0] == pytest.approx(medians[1], rel=0.1), name


def test_a_ratio_does_not_drift_with_the_clock():  # M02
    series = rounds_of(attentions(heads=4, seqlen=16384, headdim=512), count=200, warmup_s=0.5)
    pairs = zip(series["efficient"].samples_ms, series["ours"].samples_ms, strict=True)
    ratios = [theirs / ours for theirs, ours in pairs]
    first, last = statistics.median(ratios[:20]), statistics.median(ratios[-20:])
    assert first == pytest.approx(last, rel=0.03)
    if Nvml.open(0)[0] is not None:
        for one in series.values():
            assert one.median_state("sm_clock_mhz") > 0 and one.median_state("power_w") > 0


def test_run_measures_two_points(tmp_path):
    environment = {**os.environ, "FFPA_RESULTS": str(tmp_path), "FFPA_OUTPUTS": str(tmp_path / "o")}
    arguments = ["-m", "d=64,320", "h=8", "n=2048", "acc=both", "kernels=split_d-sm80"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments, "baselines=sdpa", "measure=smoke", "device=cuda"],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*/adhoc-smoke.jsonl")
    rows = {(row.headdim, row.kernel, row.acc): row for row in load_rows(path)}
    assert len(rows) == 2 * 7
    for headdim in (64, 320):
        for name, acc in (
            ("split_d-sm80", "f16"),
            ("split_d-sm80", "f32"),
            ("sdpa-efficient", None),
            ("sdpa-math", None),
            ("ceiling-matmul", None),
        ):
            row = rows[headdim, name, acc]
            assert (row.status, row.rounds) == ("ok", 10), row
    refused = rows[320, "sdpa-flash", None]
    assert refused.status == "unsupported"
    assert refused.reason
    (environment_hash,) = load_environments(path.parent)
    assert {row.env_hash for row in rows.values()} == {environment_hash}

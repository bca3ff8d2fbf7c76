"""What ncu printed on an H200 becomes a profile; what it refuses becomes a sentence."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic
import torch

from ffpa.measure.contestants import Contestant
from ffpa.measure.counters import ProfilerError, matched, ncu_options, profile_of, read_ncu
from ffpa.measure.shape import Shape
from ffpa.record import load_environments
from ffpa.record.profile import Profiles, load_profiles, save_profiles
from ffpa.report.profiles import profile_caption, profile_table

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data" / "ncu-h200.csv"
# Counters that were not yet asked for when that was printed.
LATER = {
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "600,000",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "0",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": "200,000",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": "500",
}


def printed() -> str:
    """The data file with those counters as further columns."""
    notes, head, units, launch = DATA.read_text().splitlines()
    further = (LATER, [""] * len(LATER), LATER.values())
    lines = [
        line + "".join(f',"{cell}"' for cell in cells)
        for line, cells in zip((head, units, launch), further, strict=True)
    ]
    return "\n".join([notes, *lines]) + "\n"


PRINTED = printed()
KERNEL = Contestant("split_d-sm90", "f32")
SHAPE = Shape(1, 32, 32, 8192, 8192, 512)
NAME = "split_d-sm90/d512/fp16/f32"


def test_the_counters_of_a_launch():
    (launch,) = read_ncu(PRINTED)
    profile = profile_of(launch, KERNEL, SHAPE, NAME)
    assert profile.entry == "split_d_sm90_pair_kernel"
    assert (profile.tensor_pct, profile.shared_pct, profile.issue_pct) == (82.23, 71.81, 36.87)
    assert profile.duration_ms == pytest.approx(6.14, abs=0.01)
    assert profile.l2_tb_per_s == pytest.approx(159_878_682_544 * 32e-12)
    assert profile.dram_tb_per_s == pytest.approx(0.2555, abs=1e-3)
    assert (profile.registers, profile.smem_bytes) == (168, 232448)
    assert profile.conflict_share == pytest.approx(1_336_815 / 855_966_635)
    assert profile.conflict_shares == (0, 0.0025)
    assert sum(profile.stalls.values()) == pytest.approx(1, abs=1e-4)
    assert max(profile.stalls, key=profile.stalls.get) == "barrier"


def test_every_counter_that_is_read_is_asked_for():
    asked = ncu_options()[-1].split(",")
    head = next(line for line in PRINTED.splitlines() if line.startswith('"'))
    printed = [name.strip('"') for name in head.split(",")]
    assert set(asked) <= set(printed)
    (launch,) = read_ncu(PRINTED)
    for name in asked:
        with pytest.raises(ProfilerError, match=name):
            profile_of({**launch, name: "no data"}, KERNEL, SHAPE, NAME)


def test_launches_come_in_the_order_asked_for_and_may_stop_early():
    head, _, rest = PRINTED.partition('"0"')
    two = head + '"0"' + rest + '"1"' + rest
    wanted = [(KERNEL, SHAPE, NAME), (Contestant("x", "f16"), SHAPE, "x"), (KERNEL, SHAPE, NAME)]
    assert [profile.acc for profile in matched(read_ncu(two), wanted)] == ["f32", "f16"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it printed no table"),
        ("==ERROR== Failed to profile\n", "profiled nothing: Failed to profile"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user\n", "run it as root"),
    ],
)
def test_a_refusal_is_a_sentence(text, words):
    with pytest.raises(ProfilerError, match=words):
        read_ncu(text)


def test_profiles_come_back_from_the_disk(tmp_path):
    assert load_profiles(tmp_path) is None
    profiles = Profiles(
        schema=1, started="2026-01-01T00:00:00Z", tool="Nsight Compute 2025.3.1.0",
        env_hash="a" * 64, source_hash="b" * 64,
        profiles=matched(read_ncu(PRINTED), [(KERNEL, SHAPE, NAME)]),
    )  # fmt: skip
    assert save_profiles(tmp_path, profiles).name == "profile.json"
    assert load_profiles(tmp_path) == profiles


def test_a_record_of_before_has_conflicts_of_loads_and_stores_together(results):
    apart = results.profiles.profiles[0]
    together = apart.model_copy(update={"load_wavefronts": None, "load_conflicts": None})
    assert together.conflict_shares is None
    earlier = replace(
        results, profiles=results.profiles.model_copy(update={"profiles": [together]})
    )
    assert profile_table(earlier)["bank conflicts"].tolist() == ["0.30 %"]
    assert "of loads and stores together" in profile_caption(earlier)


def loaded():
    """experiments/profile_kernels.py as a module."""
    spec = importlib.util.spec_from_file_location(
        "profile_kernels", ROOT / "experiments" / "profile_kernels.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(monkeypatch, tmp_path):
    """experiments/profile_kernels.py with a GPU and a profiler played by fakes."""
    module = loaded()
    engine = SimpleNamespace(
        slug="h200", source_hash="b" * 64, environment=lambda: synthetic.environment()
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(module, "targets", lambda options: [(KERNEL, SHAPE, NAME)] * options.h)
    monkeypatch.setattr(module, "GpuEngine", lambda: engine)
    monkeypatch.setenv("FFPA_RESULTS", str(tmp_path / "results"))
    (tmp_path / "printed").write_text(PRINTED)
    tool = tmp_path / "ncu"
    tool.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "NVIDIA (R)"; echo "Version 2025.3.1.0 (build 1)"\n'
        f'else echo "$@" > {tmp_path}/asked; cat {tmp_path}/printed; fi\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("NCU", str(tool))
    return module


def test_the_script_records_what_ncu_printed(script, tmp_path, capsys):
    assert script.main(["--d", "512", "--h", "1"]) == 0
    record = load_profiles(tmp_path / "results" / "h200")
    assert [profile.instance for profile in record.profiles] == [NAME]
    assert record.tool == "Nsight Compute 2025.3.1.0"
    assert record.env_hash in load_environments(tmp_path / "results" / "h200")
    asked = (tmp_path / "asked").read_text()
    assert "--clock-control none" in asked and asked.rstrip().endswith("--launch --d 512 --h 1")
    assert "1 of 1 launches profiled" in capsys.readouterr().out


def test_launches_that_are_missing_fail_the_script_and_keep_the_others(script, tmp_path):
    assert script.main(["--h", "2"]) == 1
    assert len(load_profiles(tmp_path / "results" / "h200").profiles) == 1


@pytest.mark.parametrize(("seconds", "count"), [(60, 2), (-1, 0)])
def test_launches_begin_within_their_time_and_the_second_of_each_is_profiled(
    script, monkeypatch, seconds, count
):
    calls = []
    monkeypatch.setattr(script, "make_inputs", lambda shape, device, seed: SimpleNamespace(
        shape=shape, query=1, key=2, value=3))  # fmt: skip
    monkeypatch.setattr(torch.cuda, "profiler", SimpleNamespace(
        start=lambda: calls.append("start"), stop=lambda: calls.append("stop")))  # fmt: skip
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(
        script.ffpa, "attention", lambda *tensors, acc, kernel: calls.append((kernel, acc))
    )
    assert script.main(["--launch", "--h", "2", "--seconds", str(seconds)]) == 0
    assert calls == [(NAME, "f32"), "start", (NAME, "f32"), "stop"] * count


def test_the_targets_are_what_runs_at_each_head_dimension(monkeypatch):
    module = loaded()
    asked = ["--d", "512", "64", "--kernels", "split_d-sm90", "split_d-sm80"]

    def find(problem, limits, kernel, variant):
        runs = (problem.headdim, problem.acc) != (64, "f16")
        name = f"{kernel}/d{problem.headdim}/fp16/{problem.acc}"
        return SimpleNamespace(instance={"name": name} if runs else None)

    monkeypatch.setattr(module, "find", find)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(module, "device_limits", lambda index: None)
    monkeypatch.setattr(module.ffpa, "kernels", lambda: [])
    found = [name for *_, name in module.targets(module.parser().parse_args(asked))]
    assert found == [
        "split_d-sm90/d512/fp16/f16", "split_d-sm90/d512/fp16/f32",
        "split_d-sm80/d512/fp16/f16", "split_d-sm80/d512/fp16/f32",
        "split_d-sm90/d64/fp16/f32", "split_d-sm80/d64/fp16/f32",
    ]  # fmt: skip


def test_the_ladder_comes_last_at_a_shape_of_its_own(monkeypatch):
    module = loaded()
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(module, "device_limits", lambda index: None)
    steps = [{"id": "split_d-sm80"}, {"id": "ladder-1-base"}, {"id": "ladder-10-ring"}]
    monkeypatch.setattr(module.ffpa, "kernels", lambda: steps)
    monkeypatch.setattr(
        module, "find", lambda problem, limits, kernel, variant: SimpleNamespace(
            instance={"name": kernel})
    )  # fmt: skip
    asked = ["--d", "512", "--acc", "f32", "--kernels", "split_d-sm80"]
    shapes = [
        (name, str(shape))
        for _, shape, name in module.targets(module.parser().parse_args([*asked, "--ladder"]))
    ]
    assert shapes == [
        ("split_d-sm80", "D=512 B=1 H=32 N=8192 fp16"),
        ("ladder-1-base", "D=128 B=4 H=32 N=2048 fp16"),
        ("ladder-10-ring", "D=128 B=4 H=32 N=2048 fp16"),
    ]
    assert len(module.targets(module.parser().parse_args(asked))) == 1


def test_without_ncu_it_says_where_to_get_it(script, monkeypatch, capsys):
    monkeypatch.delenv("NCU")
    monkeypatch.setenv("PATH", "/nowhere")
    assert script.main(["--h", "1"]) == 1
    assert "ncu is not installed" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so():
    command = [sys.executable, "experiments/profile_kernels.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "no CUDA device visible" in done.stderr and "Traceback" not in done.stderr

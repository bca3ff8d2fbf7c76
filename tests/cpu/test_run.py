"""experiments/run.py as its users start it, on a machine without a GPU."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest
import torch

from ffpa.record import load_environments, load_rows

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "run.py"

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these runs have no GPU")


@cache
def lines_of_torch():
    """What products alone make torch write to stderr: under qemu, that it cannot tell the CPU."""
    products = "import torch; factor = torch.ones(2, 64, 64); factor @ factor"
    done = subprocess.run(
        [sys.executable, "-c", products], check=True, capture_output=True, text=True, timeout=300
    )
    return frozenset(done.stderr.splitlines(keepends=True))


class Runner:
    """Runs the script with results and outputs in folders of their own.

    Torch's own lines are taken out of its stderr.
    """

    def __init__(self, folder):
        self.results = folder / "results"
        self.outputs = folder / "outputs"
        self.environment = {
            **os.environ,
            "FFPA_RESULTS": str(self.results),
            "FFPA_OUTPUTS": str(self.outputs),
        }

    def __call__(self, *arguments, cwd="/"):
        done = subprocess.run(
            [sys.executable, str(SCRIPT), *arguments],
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=300,
        )
        said = done.stderr.splitlines(keepends=True)
        done.stderr = "".join(line for line in said if line not in lines_of_torch())
        return done

    def rows(self, name="adhoc"):
        return load_rows(self.results / "cpu" / f"{name}.jsonl")


@pytest.fixture
def run(tmp_path):
    return Runner(tmp_path)


def test_the_example_of_the_readme(run):
    before = set(Path("/").iterdir())
    done = run("d=576", "acc=f32", "tag=1e5")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no CUDA device: the CPU model" in done.stdout
    assert "TFLOP/s" not in done.stdout
    (row,) = run.rows()
    assert (row.kernel, row.acc, row.headdim, row.tag) == ("numerics-cpu", "f32", 576, "1e5")
    assert row.err_rel > 0
    assert row.samples_ms == []
    assert set(Path("/").iterdir()) == before  # case H07: nothing lands where it was started
    (environment,) = load_environments(run.results / "cpu").items()
    assert environment[0] == row.env_hash
    assert environment[1].runs[row.run_id].command == "experiments/run.py d=576 acc=f32 tag=1e5"


def test_a_sweep_survives_its_failing_point(run):
    # Case H05.
    done = run("-m", "d=64,13,72")
    assert done.returncode == 1
    assert done.stderr == "failed: d=13 is not a multiple of 8: pad to d=16\n"
    assert [row.headdim for row in run.rows()] == [64, 72]
    assert len({row.run_id for row in run.rows()}) == 1


def test_an_experiment_brings_its_sweep_and_resumes(run):
    done = run("experiment=headdim", "acc=f32", "d=64,72")
    assert done.returncode == 0
    assert [row.headdim for row in run.rows("headdim")] == [64, 72]
    done = run("experiment=headdim", "acc=f32", "d=64,72,80", "resume=true")
    assert "2 of 3 points are recorded already" in done.stdout
    assert [row.headdim for row in run.rows("headdim")] == [64, 72, 80]


def test_several_experiments_share_a_process_and_are_forecast_first(run):
    done = run("experiment=ablation,headdim", "acc=f32", "measure=smoke", "d=64,72,80,88")
    assert (done.returncode, done.stderr) == (0, "")
    first, _, rest = done.stdout.partition("about ")
    assert "ablation-smoke" in first and "headdim-smoke" in first and "D=64" not in first
    assert "D=64" in rest
    # Of a sweep, smoke takes three points with both ends.
    rows = [row for name in ("ablation-smoke", "headdim-smoke") for row in run.rows(name)]
    assert [row.headdim for row in rows] == 2 * [64, 80, 88]
    assert len({row.process for row in rows}) == 1
    assert len({row.run_id for row in rows}) == 2


def test_a_misspelt_experiment_stops_all_of_them(run):
    done = run("experiment=headdim,nonsense", "d=64")
    assert done.returncode == 1
    assert "nonsense" in done.stdout + done.stderr
    assert not run.results.exists()


def test_another_seed_is_not_recorded_yet(run):
    run("d=64")
    run("d=64", "seed=1", "resume=true")
    assert [row.seed for row in run.rows()] == [0, 1]


def test_no_gpu_where_one_was_asked_for_writes_nothing(run):
    # Case C02.
    done = run("d=576", "acc=f32", "device=cuda")
    assert done.returncode != 0
    assert (done.stdout, done.stderr) == ("", "no CUDA device visible: add --gpus all\n")
    done = run("experiment=headdim", "device=cuda")
    assert (done.returncode, done.stderr) == (1, "no CUDA device visible: add --gpus all\n")
    assert not run.results.exists()
    assert not run.outputs.exists()


def test_a_dry_run_plans_and_records_nothing(run):
    done = run("experiment=headdim", "dry_run=true", "kernels=naive")
    assert done.returncode == 0
    assert "12 points, about" in done.stdout
    assert "D=1024 B=1 H=32 N=8192 fp16" in done.stdout
    assert not run.results.exists()


def test_a_plan_tells_inputs_that_are_not_standard_normal(run):
    done = run("experiment=stalls", "dry_run=true", "kernels=naive")
    assert "D=64 B=1 H=4 N=1024 fp16 inputs × 0.001 values + 1.3" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["dd=576"], 1, "dd is no setting: did you mean d?"),
        (["d", "=", "576"], 1, "'d' is not key=value: write for example d=576"),
        (["d==576"], 1, "d==576 has two equals signs: write d=576"),
        (["--d=576"], 1, "--d=576: settings take no dashes, write d=576"),
        (["d=576.0"], 1, "could not be converted to Integer"),
        (["d=-1"], 1, "failed: d=-1 is out of range: give 8 to 1024"),
        (["acc=fp32"], 1, "Available options in 'acc'"),
        (["acc=f32,f16"], 1, "add --multirun"),
        (["device=gpu"], 1, "expected one of [auto, cuda, cpu]"),
    ],
)
def test_bad_input_stops_before_any_work(run, arguments, code, words):  # H01, H02, H04
    done = run(*arguments)
    assert done.returncode == code
    assert words in done.stdout + done.stderr
    assert not run.results.exists()


def test_a_run_directory_is_not_used_twice(run, tmp_path):
    # Case H08.
    folder = tmp_path / "x"
    assert run("d=64", f"hydra.run.dir={folder}").returncode == 0
    saved = (folder / ".hydra" / "config.yaml").read_text()
    done = run("d=72", f"hydra.run.dir={folder}")
    assert done.returncode == 1
    assert "already holds a run" in done.stderr
    assert (folder / ".hydra" / "config.yaml").read_text() == saved
    (environment,) = load_environments(run.results / "cpu").values()
    assert str(tmp_path) not in environment.model_dump_json()


def test_two_launches_in_one_second_keep_apart(run):
    command = [sys.executable, str(SCRIPT), "d=64"]
    both = [
        subprocess.Popen(command, env=run.environment, stdout=subprocess.DEVNULL) for _ in range(2)
    ]
    assert [process.wait(300) for process in both] == [0, 0]
    assert len(list((run.outputs / "adhoc").iterdir())) == 2
    assert len(run.rows()) == 2


def test_ctrl_c_keeps_the_rows_so_far(run):
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "experiment=accuracy"],
        env=run.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run in a shell's background inherit that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    path = run.results / "cpu" / "accuracy.jsonl"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with resume=true" in output
    recorded = run.rows("accuracy")
    assert 0 < len(recorded) < 60
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_help_is_for_newcomers(run):
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.count("python experiments/run.py ") == 4
    for word in ("headdim", "f16f32", "sdpa-efficient", "measure.KEY=VALUE", "vae-384"):
        assert word in done.stdout


def test_settings_can_be_shown_without_a_run(run):
    done = run("--cfg", "job", "experiment=headdim")
    assert done.returncode == 0
    assert "name: headdim" in done.stdout
    assert not run.outputs.exists()

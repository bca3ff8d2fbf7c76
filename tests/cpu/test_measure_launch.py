"""A launch over several points, some of which go wrong, with an engine that does as it is told."""

import pytest
from omegaconf import OmegaConf

from ffpa.measure.ceiling import ImpossibleResultError
from ffpa.measure.contestants import Contestant
from ffpa.measure.faults import DeviceLostError
from ffpa.measure.identity import identity, shape_of
from ffpa.measure.launch import Launch, run_all, without_path
from ffpa.record import Row, load_environments, load_rows, remember
from ffpa.record.environment import Build
from ffpa.record.probe import probe
from ffpa.settings import MeasureSettings, Settings

KERNEL, BASELINE = Contestant("split_d-sm80", "f32"), Contestant("sdpa-efficient")


class Engine:
    """Measures nothing: each head dimension has the outcome that a test gives it."""

    slug = "test-gpu"
    source_hash = "c" * 64
    other_processes = 0
    capacity = 2**37

    def __init__(self, outcomes):
        self.outcomes = outcomes
        self.measured = []

    def environment(self):
        return probe(None, None)

    def fit(self, settings):
        return settings

    def contestants(self, settings):
        return [KERNEL, BASELINE]

    def measure(self, settings, contestants, provenance, progress):
        progress("round 1")
        self.measured.append(settings.d)
        outcome = self.outcomes.get(settings.d, {})
        if isinstance(outcome, BaseException):
            raise outcome
        rows = []
        for one in contestants:
            status = outcome.get(one.kernel, "ok")
            rows.append(
                Row(
                    **identity(settings, shape_of(settings), provenance),
                    kernel=one.kernel,
                    acc=one.acc,
                    backend="none",
                    status=status,
                    reason=None if status == "ok" else "as told",
                    err_rel=1e-4,
                )
            )
        return rows


@pytest.fixture
def launch(tmp_path, monkeypatch, capsys):
    """Run points 64, 72 and 80; gives exit code, engine, rows and what stderr said."""

    def run(outcomes=None, *, read_rows=True, **changes):
        engine = Engine(outcomes or {})
        monkeypatch.setattr("ffpa.measure.launch.engine_for", lambda device: engine)
        one = Launch(["experiment=x"])
        for d in (64, 72, 80):
            one.add(OmegaConf.structured(Settings(d=d, results_dir=str(tmp_path), **changes)))
        code = one.finish()
        path = tmp_path / "test-gpu" / "adhoc.jsonl"
        rows = load_rows(path) if read_rows and path.exists() else []
        return code, engine, rows, capsys.readouterr().err

    return run


def test_all_points_are_recorded(launch, tmp_path):
    code, _, rows, stderr = launch()
    assert (code, stderr) == (0, "")
    assert [row.headdim for row in rows] == [64, 64, 72, 72, 80, 80]
    (environment,) = load_environments(tmp_path / "test-gpu").values()
    (run,) = environment.runs.values()
    assert run.command == "experiments/run.py experiment=x"
    assert run.config["measure"]["max_rounds"] == 200


def test_an_impossible_rate_fails_the_run_and_keeps_no_row_of_its_point(launch):
    code, engine, rows, stderr = launch({72: ImpossibleResultError("2000 TFLOP/s")})
    assert code == 1
    assert engine.measured == [64, 72, 80]
    assert {row.headdim for row in rows} == {64, 80}
    assert "failed: D=72 B=1 H=32 N=8192 fp16: 2000 TFLOP/s" in stderr


def test_an_unforeseen_error_is_shown_whole_and_the_others_go_on(launch):
    code, engine, rows, stderr = launch({72: KeyError("oops")})
    assert code == 1
    assert engine.measured == [64, 72, 80]
    assert {row.headdim for row in rows} == {64, 80}
    assert "Traceback" in stderr


def test_a_lost_device_ends_the_sweep(launch):
    code, engine, rows, stderr = launch({72: DeviceLostError("the CUDA context is lost")})
    assert code == 1
    assert engine.measured == [64, 72]
    assert {row.headdim for row in rows} == {64}
    assert "the points after it did not run" in stderr


def test_ctrl_c_keeps_what_was_measured(launch):
    code, _, rows, _ = launch({72: KeyboardInterrupt()})
    assert code == 130
    assert {row.headdim for row in rows} == {64}


def test_a_wrong_result_of_ours_is_recorded_and_fails_the_run(launch):
    code, _, rows, stderr = launch({72: {"split_d-sm80": "wrong_result"}})
    assert code == 1
    assert len(rows) == 6
    assert "N=8192 fp16 split_d-sm80 acc=f32: as told" in stderr


def test_a_wrong_result_may_be_the_subject(launch):
    tolerant = MeasureSettings(tolerate_wrong=True)
    code, _, _, _ = launch({72: {"split_d-sm80": "wrong_result"}}, measure=tolerant)
    assert code == 0


def test_a_baseline_that_is_wrong_or_refuses_is_its_own_affair(launch):
    code, _, rows, _ = launch(
        {64: {"sdpa-efficient": "wrong_result"}, 72: {"sdpa-efficient": "unsupported"}}
    )
    assert (code, len(rows)) == (0, 6)


def test_resume_runs_what_is_missing(launch):
    launch({72: KeyError("oops")})
    code, engine, rows, _ = launch(resume=True)
    assert code == 0
    assert engine.measured == [72]
    assert len(rows) == 6


@pytest.mark.parametrize("now, measured", [("a" * 64, [80]), ("b" * 64, [64, 72, 80])])
def test_only_what_is_stale_or_missing(launch, tmp_path, monkeypatch, now, measured):
    """Rows of other sources hold where those of their kernel, which are recorded, are the same."""
    launch({80: KeyError("oops")})
    folder = tmp_path / "test-gpu"
    (environment,) = load_environments(folder).values()
    build = Build(
        archs=["80"], flags=[], nvcc="13.0", host_compiler="gcc", kernels={},
        sources={"none": "a" * 64},
    )  # fmt: skip
    remember(folder, environment.model_copy(update={"builds": {Engine.source_hash: build}}))
    monkeypatch.setattr(Engine, "source_hash", "d" * 64)
    monkeypatch.setattr("ffpa.measure.launch.tree_kernel_hashes", lambda: {"none": now})
    _, engine, _, _ = launch(stale=True)
    assert engine.measured == measured


def test_a_damaged_results_file_is_named_before_anything_is_measured(launch, tmp_path):
    path = tmp_path / "test-gpu" / "adhoc.jsonl"
    path.parent.mkdir()
    path.write_text("{}\n")
    code, engine, _, stderr = launch(read_rows=False)
    assert (code, engine.measured) == (1, [])
    assert "failed: adhoc.jsonl, line 1: run_id: Field required" in stderr


def test_a_damaged_environment_is_told_without_a_traceback(launch, tmp_path):
    path = tmp_path / "test-gpu" / "environment.json"
    path.parent.mkdir()
    path.write_text("{")
    code, engine, _, stderr = launch()
    assert (code, engine.measured) == (1, [])
    assert stderr.startswith("failed: ") and "Traceback" not in stderr


@pytest.mark.parametrize(
    ("argument", "published"),
    [
        ("d=576", "d=576"),
        ("-m", "-m"),
        ("results_dir=/home/someone/x", "results_dir=..."),
        ("results_dir=~/x", "results_dir=..."),
    ],
)
def test_published_commands_hold_no_paths(argument, published):
    assert without_path(argument) == published


@pytest.mark.parametrize(
    ("outcome", "code", "measured"),
    [
        (DeviceLostError("the CUDA context is lost"), 1, [64]),
        (KeyboardInterrupt(), 130, [64]),
        (KeyError("oops"), 1, [64, 72]),
    ],
)
def test_launches_go_on_after_a_failure_but_not_without_a_device(
    outcome, code, measured, tmp_path, monkeypatch, capsys
):
    engine = Engine({64: outcome})
    monkeypatch.setattr("ffpa.measure.launch.engine_for", lambda device: engine)
    launches = []
    for name, d in (("first", 64), ("second", 72)):
        launches.append(Launch([f"experiment={name}"]))
        settings = Settings(name=name, d=d, results_dir=str(tmp_path))
        launches[-1].add(OmegaConf.structured(settings))
    assert run_all(launches) == code
    assert engine.measured == measured
    output = capsys.readouterr().out
    assert output.index("first") < output.index("second") and "about 0 minutes" in output

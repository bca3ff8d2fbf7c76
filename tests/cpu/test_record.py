"""Rows, result files and environments on disk."""

import json
import os
import re

import pytest
from pydantic import ValidationError

from ffpa.record import (
    Environment,
    Row,
    append_rows,
    gpu_slug,
    iqr_of,
    load_environments,
    load_rows,
    median_of,
    remember,
    results_dir,
)
from ffpa.record.environment import Build, Run, Software
from ffpa.record.probe import probe
from ffpa.record.provenance import git_state

COLUMNS = """schema run_id experiment kernel acc dtype batch nheads_q nheads_kv seqlen_q seqlen_k
    headdim causal status reason samples_ms median_ms iqr_ms tflops err_rel err_max rounds discarded
    backend env_hash source_hash process seed variant stop discard_reason sm_clock_mhz power_w"""


def row(**changes):
    samples = changes.get("samples_ms", [2.0, 1.0, 4.0])
    fields = {
        "run_id": "run",
        "experiment": "adhoc",
        "process": 1,
        "seed": 0,
        "kernel": "naive",
        "acc": "f32",
        "backend": "naive/d64/fp16/f32",
        "dtype": "fp16",
        "batch": 1,
        "nheads_q": 4,
        "nheads_kv": 2,
        "seqlen_q": 8,
        "seqlen_k": 16,
        "headdim": 64,
        "causal": False,
        "status": "ok",
        "samples_ms": samples,
        "median_ms": median_of(samples) if samples else None,
        "iqr_ms": iqr_of(samples) if samples else None,
        "tflops": 1.5 if samples else None,
        "rounds": len(samples),
        "env_hash": "a" * 64,
        "source_hash": "b" * 64,
    }
    return Row(**{**fields, **changes})


def environment(python="3.12.3", **parts):
    software = Software(torch="2.11", python=python, os="Linux", libc="glibc", arch="x86_64")
    return Environment(gpu=None, software=software, **parts)


def run(command):
    return Run(started="2026-01-01T00:00:00Z", version="1", command=command, config={})


def test_a_row_survives_the_file(tmp_path):
    path = tmp_path / "h200" / "adhoc.jsonl"
    append_rows(path, [row()])
    append_rows(path, [row(status="oom", reason="too big", samples_ms=[])])
    assert load_rows(path) == [row(), row(status="oom", reason="too big", samples_ms=[])]


def test_a_mean_of_value_survives_the_file_and_is_another_shape(tmp_path):
    path = tmp_path / "h200" / "adhoc.jsonl"
    append_rows(path, [row(value_mean=1.3)])
    (again,) = load_rows(path)
    assert again.value_mean == 1.3 and again.shape == row(value_mean=1.3).shape != row().shape


def test_a_line_from_before_values_had_a_mean_is_of_mean_zero():
    line = json.loads(row().to_line())
    assert line.pop("value_mean") == 0
    assert Row.from_line(json.dumps(line)) == row()


def test_a_line_has_the_columns_of_the_schema():
    line = json.loads(row().to_line())
    assert set(COLUMNS.split()) <= set(line)
    assert line["schema"] == 1


def test_nothing_is_written_for_no_rows(tmp_path):
    append_rows(tmp_path / "x" / "adhoc.jsonl", [])
    assert list(tmp_path.iterdir()) == []


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "adhoc.jsonl"
    append_rows(path, [row()])
    path.write_text(path.read_text() + '{"schema": 1}\n')
    with pytest.raises(ValueError, match=r"adhoc\.jsonl, line 2: run_id: Field required"):
        load_rows(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": "unsupported"}, "needs a reason"),
        ({"status": "oom", "reason": "big"}, "cannot hold times"),
        ({"rounds": 7}, "rounds is 7, but there are 3 samples"),
        ({"median_ms": 1.0}, "is not that of samples_ms"),
        ({"samples_ms": [], "tflops": 3.0}, "need samples_ms"),
        ({"tflops": None}, "needs median_ms, iqr_ms and tflops"),
        ({"samples_ms": [0.0, 1.0]}, "above zero"),
        ({"err_rel": float("nan")}, "finite number"),
        ({"acc": "fp32"}, "Input should be 'f16'"),
        ({"headdim": 0}, "greater than or equal to 1"),
        ({"env_hash": "x"}, "String should match pattern"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_rows_that_contradict_themselves_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        row(**changes)


def test_a_wrong_result_keeps_its_time():
    assert row(status="wrong_result", reason="error").median_ms == 2.0


def test_quartiles():
    assert iqr_of([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert iqr_of([1.0]) == 0.0


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "geforce-rtx-4090"),
        ("NVIDIA", "unknown"),
    ],
)
def test_folder_of_a_gpu(name, slug):
    assert gpu_slug(name) == slug


def test_results_can_be_redirected(monkeypatch, tmp_path):
    monkeypatch.setenv("FFPA_RESULTS", str(tmp_path))
    assert results_dir() == tmp_path
    monkeypatch.delenv("FFPA_RESULTS")
    assert results_dir().parts[-2:] == ("experiments", "results")


def test_environments_of_one_machine_merge(tmp_path):
    build = Build(archs=["90"], flags=[], nvcc="13.0", host_compiler="gcc", kernels={})
    first = remember(tmp_path, environment(runs={"one": run("first")}))
    second = remember(tmp_path, environment(runs={"two": run("second")}, builds={"c": build}))
    assert first == second
    (entry,) = load_environments(tmp_path).values()
    assert list(entry.runs) == ["one", "two"]
    assert entry.builds == {"c": build}


def test_other_software_is_another_environment(tmp_path):
    keys = {remember(tmp_path, environment(python)) for python in ("3.11.0", "3.12.0")}
    assert len(keys) == 2
    assert set(load_environments(tmp_path)) == keys
    assert [path.name for path in tmp_path.iterdir()] == ["environment.json"]


def test_the_hash_does_not_depend_on_run_or_reasons():
    plain = environment()
    assert plain.env_hash == environment(missing={"a": "b"}, runs={"x": run("c")}).env_hash
    assert re.fullmatch("[0-9a-f]{64}", plain.env_hash)


def test_this_machine_without_a_gpu():
    found = probe(None, None)
    assert found.gpu is None
    assert found.missing["gpu"] == "no CUDA device in this run"
    for name, value in found.software:
        assert (value is None) == (f"software.{name}" in found.missing)
    text = found.model_dump_json()
    assert os.uname().nodename not in text
    assert "/home" not in text


def test_the_same_machine_has_the_same_hash_twice():
    assert probe(None, None).env_hash == probe(None, None).env_hash


def test_git_state_of_a_folder_without_git(tmp_path):
    state = git_state(tmp_path)
    assert state.commit is None
    assert state.reason in ("not a git work tree with a commit", "git is not installed")

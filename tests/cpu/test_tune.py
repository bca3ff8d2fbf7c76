"""experiments/tune.py without a GPU: its candidates, and a tree that the build takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
import yaml

from ffpa.measure.tuning import (
    candidates,
    find_kernel,
    search_command,
    searches,
    shipped_entry,
    write_tree,
)
from ffpa.record import load_rows
from ffpa.settings import SettingsError
from ffpa_build import manifest

ROOT = Path(__file__).parents[2]
KERNEL = "split_d-sm90"


def entry(d=128, dtype="bf16", acc="f32"):
    return shipped_entry(find_kernel(ROOT, KERNEL), d, dtype, acc)


def test_candidates_are_all_combinations_but_the_shipped_one():
    shipped = entry()
    trial = candidates(shipped, {"Bc": [shipped["Bc"], 64], "slots": [shipped["slots"], 2, 3]})
    assert [one.variant for one in trial] == [
        "slots2", "slots3", "bc64", "bc64-slots2", "bc64-slots3",
    ]  # fmt: skip
    assert all(one.entry["headdim"] == 128 and one.entry["dtype"] == "bf16" for one in trial)
    assert trial[-1].entry["Bc"] == 64 and trial[-1].entry["slots"] == 3


def test_the_tree_lists_them_for_the_build(tmp_path):
    trial = candidates(entry(), {"ping_pong": [False, True], "slots": [2, 3]})
    write_tree(ROOT, tmp_path, find_kernel(ROOT, KERNEL), [entry(), *(t.entry for t in trial)])
    instances = manifest.load(tmp_path)
    assert [i.variant for i in instances] == ["", *(t.variant for t in trial)]
    assert {i.id for i in instances} == {KERNEL}
    assert dict(instances[1].fields)["slots"] == "2"
    switches = (tmp_path / "conf/kernels/tune.yaml").read_text()
    assert all(f"{KERNEL}/{one.variant}: true" in switches for one in trial)


def test_what_is_not_compiled_is_refused():
    with pytest.raises(SettingsError, match="no entry of split_d-sm90 for d=100"):
        entry(d=100)
    with pytest.raises(SettingsError, match="kernel='fast' is not in"):
        find_kernel(ROOT, "fast")


@pytest.mark.parametrize("group", sorted(path.stem for path in (ROOT / "conf/tune").iterdir()))
def test_dry_run_shows_the_candidates(group, tmp_path):
    command = [sys.executable, "experiments/tune.py", f"tune={group}", "dry_run=true"]
    environ = os.environ | {"PYTHONPATH": str(ROOT / "src"), "FFPA_OUTPUTS": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fields = yaml.safe_load((ROOT / "conf/tune" / f"{group}.yaml").read_text())["fields"]
    assert "(shipped)" in done.stdout
    assert all(field in done.stdout for field in fields)


def test_every_structure_is_searched_at_more_than_one_head_dimension():
    """Of split_d-sm90, as its header has them: one CTA, two, and two that share 64 rows."""
    found = {}
    for d in manifest_headdims():
        for name in searches(ROOT, KERNEL, d, "bf16"):
            shipped = entry(d)
            structure = "solo" if shipped["ctas"] == 1 else "pair"
            if shipped["Br"] == 64:
                structure = "quartet"
            assert name == f"{structure}-{d}"
            found.setdefault(structure, set()).add(d)
    assert set(found) == {"solo", "pair", "quartet"}
    assert all(len(dims) > 1 for dims in found.values())


def manifest_headdims():
    return sorted({one.headdim for one in manifest.load(ROOT) if one.id == KERNEL})


def test_the_command_behind_a_search_is_that_of_the_search():
    row = synthetic.row(KERNEL, "f32", 512, 600.0, experiment="tune", dtype="bf16")
    ran = "experiments/run.py name=tune kernels=tune baselines=none acc=f32 results_dir=... d=512"
    command = search_command(ROOT, f"{ran} dtype=bf16 measure=brief", row)
    assert command == "experiments/tune.py tune=pair-512 measure=brief"
    unsearched = row.model_copy(update={"headdim": 960})
    assert "no longer has" in search_command(ROOT, ran, unsearched)


WITHOUT_NVCC = """
import runpy, subprocess, sys
run = subprocess.run
built = subprocess.CompletedProcess([], 0, "", "")
subprocess.run = lambda command, **rest: built if "setup.py" in command else run(command, **rest)
runpy.run_path("experiments/tune.py", run_name="__main__")
"""


def test_a_search_hands_run_what_it_knows(tmp_path):
    fields = ["fields.slots=[5]", "fields.query_boxes=[0,1]"]
    arguments = ["tune=pair-512", *fields, "device=cpu", "measure=smoke", f"results_dir={tmp_path}"]
    environ = os.environ | {"PYTHONPATH": str(ROOT / "src"), "FFPA_OUTPUTS": str(tmp_path / "out")}
    command = [sys.executable, "-c", WITHOUT_NVCC, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rows appended to" in done.stdout and "no candidate was timed" in done.stdout
    (row,) = load_rows(tmp_path / "cpu" / "tune-smoke.jsonl")
    assert (row.headdim, row.dtype, row.acc) == (512, "bf16", "f32")

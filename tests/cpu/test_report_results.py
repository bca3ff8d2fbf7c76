"""How rows become points: pooling, staleness, gaps, pairing."""

from pathlib import Path

import pytest
import synthetic
from synthetic import ENV_HASH, OTHER_SOURCES, SOURCES, row

from ffpa.measure.tuning import searched_hashes
from ffpa.record import Row, Run, remember
from ffpa.record.provenance import tree_source_hash
from ffpa.record.store import PAPER_FOLDER, REPOSITORY
from ffpa.report.names import EFFICIENT, Contestant, compiled_for
from ffpa.report.points import Point
from ffpa.report.results import NoRowsError, Results, recorded_folders

F32 = Contestant("split_d-sm80", "f32")
WRONG = {"status": "wrong_result", "reason": "relative error 0.5 is above the bound 1e-3"}


def results(*rows: Row) -> Results:
    environment = synthetic.environment()
    return Results(Path("h200"), rows, {synthetic.ENV_HASH: environment}, SOURCES)


def only_point(*rows: Row) -> Point:
    (point,) = results(*rows).points("headdim")
    return point


def test_processes_of_one_build_are_pooled() -> None:
    point = only_point(*(row("split_d-sm80", "f32", 512, 150.0, process=pid) for pid in (1, 2, 3)))
    assert point.rate is not None
    assert (point.rate.processes, point.rate.samples) == (3, 60)
    assert point.rate.value == pytest.approx(150.0, rel=0.02)


def test_rows_of_the_newest_sources_replace_older_ones() -> None:
    old = row("split_d-sm80", "f32", 512, 100.0, source_hash=OTHER_SOURCES, run_id="old")
    new = row("split_d-sm80", "f32", 512, 150.0)
    point = only_point(old, new)
    assert point.rows == (new,)
    assert not point.stale
    assert only_point(new, old).stale


@pytest.mark.parametrize(
    "now, stale", [({"split_d-sm80": "a"}, False), ({"split_d-sm80": "b"}, True), ({}, True)]
)
def test_rows_of_other_sources_hold_while_those_of_their_kernel_do(
    now: dict[str, str], stale: bool
) -> None:
    environment = synthetic.environment()
    build = environment.builds[SOURCES].model_copy(update={"sources": {"split_d-sm80": "a"}})
    environment = environment.model_copy(update={"builds": {OTHER_SOURCES: build}})
    rows = (row("split_d-sm80", "f32", 512, 150.0, source_hash=OTHER_SOURCES),)
    loaded = Results(Path("h200"), rows, {ENV_HASH: environment}, SOURCES, None, now)
    assert loaded.points("headdim")[0].stale is stale


@pytest.mark.parametrize("name", [("sdpa-efficient", None), ("numerics-cpu", "f32")])
def test_what_is_not_compiled_from_our_sources_does_not_go_stale(name: tuple[str, str]) -> None:
    assert not only_point(row(*name, 512, 130.0, source_hash=OTHER_SOURCES)).stale


def test_the_newest_run_comes_last_whatever_its_file(tmp_path: Path) -> None:
    late = row("naive", "f32", 512, 1.0, experiment="adhoc", run_id="late")
    folder = synthetic.write(tmp_path / "gpu", [row("naive", "f32", 512, 1.0), late])
    run = Run(started="2026-02-01T00:00:00Z", version="0", command="run.py d=512", config={})
    remember(folder, synthetic.environment().model_copy(update={"runs": {"late": run}}))
    assert Results.load(folder).rows[-1].run_id == "late"


def test_a_search_has_sources_of_its_own(tmp_path: Path) -> None:
    """The build of the newest rows is not theirs."""
    fields = {"experiment": "tune", "source_hash": OTHER_SOURCES, "run_id": "late"}
    rows = [
        row("split_d-sm80", "f32", 512, 150.0),
        row("split_d-sm80", "f32", 512, 140.0, **fields),
    ]
    folder = synthetic.write(tmp_path / "gpu", rows)
    run = Run(started="2026-02-01T00:00:00Z", version="0", command="run.py", config={})
    remember(folder, synthetic.environment().model_copy(update={"runs": {"late": run}}))
    loaded = Results.load(folder, SOURCES)
    assert loaded.rows[-1].experiment == "headdim"


def searched(variants: tuple[str, ...], sources: str) -> Results:
    """Rows of the search at D = 512: the shipped configuration and these."""
    fields = {"experiment": "tune", "dtype": "bf16", "source_hash": sources}
    rows = [
        row("split_d-sm90", "f32", 512, 600.0, variant=variant, **fields)
        for variant in ("", *variants)
    ]
    return Results(
        Path("gpu"), tuple(rows), {ENV_HASH: synthetic.environment()}, tree_source_hash()
    )


def test_a_search_is_stale_when_its_candidates_would_be_compiled_from_other_sources() -> None:
    """The hash is that of the tree with the recorded candidates in the list of kernels."""
    kept = ("slots5", "slots5-behind1")
    (current,) = searched_hashes(REPOSITORY, "split_d-sm90", 512, "bf16", "f32", kept)
    assert current != tree_source_hash()
    assert [point.stale for point in searched(kept, current).points("tune")] == [False] * 3
    assert all(point.stale for point in searched(kept, OTHER_SOURCES).points("tune"))
    assert all(point.stale for point in searched(kept[:1], current).points("tune"))
    assert not searched_hashes(REPOSITORY, "split_d-sm90", 960, "bf16", "f32", kept)


def test_the_committed_search_is_of_the_sources_of_the_tree() -> None:
    results = Results.load(PAPER_FOLDER)
    points = results.points("tune")
    (shipped,) = (row for point in points for row in point.rows if row.acc and not row.variant)
    if not results.unchanged(shipped.backend, shipped.env_hash, shipped.source_hash):
        pytest.skip("the kernel that was searched has changed since, or its hash is not recorded")
    assert not any(point.stale for point in points)


def test_the_command_of_a_search_is_one_that_can_be_typed() -> None:
    """run.py, which the search called, would look for kernels that only the search's tree has."""
    (command,) = Results.load(PAPER_FOLDER).commands("tune")
    assert command.startswith("python experiments/tune.py tune=pair-512 measure=brief  # 20")


def test_one_wrong_result_condemns_the_point() -> None:
    point = only_point(
        row("split_d-sm80", "f32", 512, 150.0, process=1, **WRONG),
        row("split_d-sm80", "f32", 512, 150.0, process=2),
    )
    assert point.deciding.status == "wrong_result"
    assert not point.counts and point.rate is None
    assert point.time is not None  # the time stays visible, as that of a wrong result


def test_a_retry_that_worked_replaces_a_failure() -> None:
    failed = row("split_d-sm80", "f32", 512, status="oom", reason="out of memory")
    assert only_point(failed, row("split_d-sm80", "f32", 512, 150.0, run_id="retry")).counts


def test_speedup_pairs_rows_of_the_same_process_only() -> None:
    kernel = row("split_d-sm80", "f32", 512, 260.0)
    baseline = row("sdpa-efficient", None, 512, 130.0)
    elsewhere = baseline.model_copy(update={"process": 2})
    together, apart = results(kernel, baseline), results(kernel, elsewhere)
    speedup = together.speedup(together.points("headdim")[1], EFFICIENT)
    assert speedup is not None and speedup.low < 2.0 < speedup.high
    assert apart.speedup(apart.points("headdim")[1], EFFICIENT) is None


def test_speedup_over_a_wrong_baseline_is_none() -> None:
    both = results(
        row("split_d-sm80", "f32", 512, 260.0), row("sdpa-efficient", None, 512, 130.0, **WRONG)
    )
    assert both.speedup(both.points("headdim")[1], EFFICIENT) is None


def test_missing_experiment_names_the_command() -> None:
    with pytest.raises(NoRowsError, match="nox -s bench -- experiment=seqlen"):
        results().points("seqlen")


@pytest.mark.parametrize(
    ("kernel", "capability", "note"),
    [
        ("split_d-sm80", "9.0", "sm_80 kernel compiled for sm_90"),
        ("split_d-sm80", "8.0", None),
        ("split_d-sm90", "9.0", None),
        ("naive", "9.0", None),
        ("split_d-sm80", None, None),
    ],
)
def test_kernels_on_another_architecture_carry_a_note(
    kernel: str, capability: str | None, note: str | None
) -> None:
    assert compiled_for(kernel, capability) == note


def test_labels_say_the_accumulator() -> None:
    assert F32.label == "split_d-sm80 F32"
    assert Contestant("split_d-sm80", "qk32_pv16", "stages1").label == (
        "split_d-sm80 QK32 PV16 (stages1)"
    )
    assert EFFICIENT.label == "SDPA EA"


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "gpu", [row("naive", "f32", 512, 1.0)])
    with (folder / "headdim.jsonl").open("a") as file:
        file.write('{"schema": 1}\n')
    with pytest.raises(ValueError, match=r"headdim.jsonl, line 2"):
        Results.load(folder)


def test_redirected_results_are_found_beside_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = synthetic.write(tmp_path / "gpu", [row("naive", "f32", 512, 1.0)])
    monkeypatch.setenv("FFPA_RESULTS", str(tmp_path))
    assert folder in recorded_folders()

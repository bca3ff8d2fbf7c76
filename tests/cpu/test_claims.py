"""Claims: the file itself, every kind of metric, every verdict, the exit code."""

import itertools
import shlex
from pathlib import Path
from typing import Any

import pytest
import synthetic
import yaml
from synthetic import ENV_HASH, OTHER_SOURCES, SOURCES, row

from ffpa.record import Row
from ffpa.record.profile import Profiles
from ffpa.record.store import PAPER_FOLDER, REPOSITORY
from ffpa.report.__main__ import main
from ffpa.report.claims import Claim, Expect, load_claims
from ffpa.report.results import Results
from ffpa.report.verdicts import Verdict, judge, judge_all
from paper_figures.build import SHEETS

DIMS = [320, 512, 576, 1024]
RATES = {320: 150.0, 512: 180.0, 576: 220.0, 1024: 140.0}


def claim(metric: dict[str, Any], expect: dict[str, float], **fields: Any) -> Claim:
    select = {"kernel": "split_d-sm80", "acc": "f32", "headdim": DIMS} | fields.pop("select", {})
    entry: dict[str, Any] = {
        "id": "test", "statement": "A sentence.", "source": "ours", "where": "headdim_tflops",
        "experiment": "headdim", "select": select, "metric": metric, "expect": expect,
        "gate": True, "minutes": 1, "command": "nox -s bench -- experiment=headdim",
    }  # fmt: skip
    return Claim.model_validate(entry | fields)


def rows(**fields: Any) -> list[Row]:
    ours = [row("split_d-sm80", "f32", dim, rate, **fields) for dim, rate in RATES.items()]
    return [*ours, *(row("sdpa-efficient", None, dim, 100.0, **fields) for dim in DIMS)]


def judged(entry: Claim, recorded: list[Row], capability: str | None = "9.0") -> Verdict:
    environments = {ENV_HASH: synthetic.environment(capability)}
    return judge(entry, Results(Path("gpu"), tuple(recorded), environments, SOURCES))


TFLOPS = {"of": "tflops"}
SPEEDUP = {"of": "speedup"}


@pytest.mark.parametrize(
    ("metric", "holds", "fails"),
    [
        ({"kind": "every", **TFLOPS}, {"low": 130, "high": 230}, {"low": 145}),
        ({"kind": "every", **SPEEDUP}, {"low": 1.3}, {"high": 2.0}),
        ({"kind": "every", "of": "err_rel"}, {"high": 4e-4}, {"high": 2e-4}),
        (
            {"kind": "every", "of": "err_rel", "over": {"kernel": "sdpa-efficient"}},
            {"low": 1, "high": 1},
            {"high": 0.9},
        ),
        ({"kind": "peak", **SPEEDUP}, {"low": 2.1, "high": 2.3}, {"low": 2.4}),
        ({"kind": "peak_at", **TFLOPS}, {"low": 576, "high": 576}, {"high": 512}),
        ({"kind": "trend", **TFLOPS}, {"low": -0.1, "high": 0.1}, {"low": 0.5}),
        ({"kind": "step", "at": 576, **TFLOPS}, {"low": 1.15, "high": 1.3}, {"low": 1.4}),
        ({"kind": "steps", **TFLOPS}, {"low": 0.6, "high": 1.3}, {"low": 0.7}),
        ({"kind": "flat", **TFLOPS}, {"low": 0.6, "high": 0.7}, {"low": 0.7}),
        ({"kind": "share_of_peak", "at": 1024, **TFLOPS}, {"high": 0.7}, {"high": 0.5}),
        ({"kind": "failures"}, {"high": 0}, {"low": 1}),
    ],
)
def test_every_metric_can_hold_and_can_fail(
    metric: dict[str, Any], holds: dict[str, float], fails: dict[str, float]
) -> None:
    assert judged(claim(metric, holds), rows()).name == "holds"
    assert judged(claim(metric, fails), rows()).name == "does not hold"


@pytest.mark.parametrize("expect", [{"low": 230.0}, {"high": 210.0}])
def test_tolerance_widens_both_bounds(expect: dict[str, float]) -> None:
    metric = {"kind": "peak", **TFLOPS}
    assert judged(claim(metric, expect), rows()).name == "does not hold"
    assert judged(claim(metric, expect, tolerance=0.1), rows()).name == "holds"


def test_an_interval_that_reaches_over_a_bound_is_unclear() -> None:
    metric = {"kind": "every", **SPEEDUP}
    values = judged(claim(metric, {"low": 0.0}), rows()).measured
    lowest = float(values.split(" to ")[0])
    for bound in ({"low": lowest * 0.9999}, {"low": lowest * 1.0001}):
        verdict = judged(claim(metric, bound), rows())
        assert verdict.name == "unclear" and not verdict.fails
        assert "intervals" in verdict.measured
        assert verdict.why == "an interval reaches over the bound at D = 1024"
    assert judged(claim(metric, {"low": lowest * 1.1}), rows()).name == "does not hold"


def test_rows_of_other_sources_are_stale_and_still_shown() -> None:
    verdict = judged(claim({"kind": "peak", **TFLOPS}, {"low": 0}), rows(source_hash=OTHER_SOURCES))
    assert verdict.name == "stale" and verdict.measured
    assert not verdict.fails


def test_a_claim_on_a_baseline_does_not_go_stale() -> None:
    entry = claim(
        {"kind": "every", **TFLOPS}, {"low": 90}, select={"kernel": "sdpa-efficient", "acc": None}
    )
    assert judged(entry, rows(source_hash=OTHER_SOURCES)).name == "holds"


@pytest.mark.parametrize("status", ["wrong_result", "compile_error", "timeout"])
def test_a_failed_point_refutes_the_claim(status: str) -> None:
    bad = row("split_d-sm80", "f32", 512, status=status, reason="broken")
    verdict = judged(
        claim({"kind": "every", **TFLOPS}, {"low": 0}), [*rows()[:1], bad, *rows()[2:]]
    )
    assert verdict.name == "does not hold"
    assert verdict.why == f"D = 512: {status} (broken)"


def test_a_point_that_this_machine_cannot_run_is_not_tested() -> None:
    oom = row("split_d-sm80", "f32", 512, status="oom", reason="needs 64 GiB")
    recorded = [*rows()[:1], oom, *rows()[2:]]
    verdict = judged(claim({"kind": "every", **TFLOPS}, {"low": 0}), recorded)
    assert verdict.name == "not tested here" and "needs 64 GiB" in verdict.why
    counted = judged(claim({"kind": "failures"}, {"high": 0}), recorded)
    assert counted.name == "does not hold" and counted.measured == "1"


@pytest.mark.parametrize(
    ("recorded", "capability", "why"),
    [
        ([], "9.0", "nothing recorded"),
        (rows(), None, "no GPU"),
        (rows(), "8.9", "about sm_90, and this is sm_89"),
        (rows()[1:], "9.0", "no rows for D = 320"),
        (rows()[:4], "9.0", "no SDPA EA in the same runs"),
        ([entry.model_copy(update={"experiment": "seqlen"}) for entry in rows()], "9.0", "headdim"),
    ],
)
def test_why_a_claim_was_not_tested(recorded: list[Row], capability: str | None, why: str) -> None:
    entry = claim({"kind": "every", **SPEEDUP}, {"low": 0}, hardware=["sm_90"])
    verdict = judged(entry, recorded, capability)
    assert verdict.name == "not tested here"
    assert why in verdict.why


def test_times_with_the_hosts_own_judge_nothing() -> None:
    """One sample of twenty does not matter, every fifth does."""
    entry = claim({"kind": "every", **TFLOPS}, {"low": 0})
    assert judged(entry, rows(late=1, requeued=7)).name == "holds"
    verdict = judged(entry, rows(late=4, requeued=7))
    assert verdict.name == "not tested here"
    assert verdict.why == "the times hold the host's own at D = 320, 512, 576, 1024"


def write_claims(path: Path, *entries: Claim) -> Path:
    path.write_text(yaml.safe_dump([entry.model_dump(mode="json") for entry in entries]))
    return path


@pytest.mark.parametrize(("gate", "code"), [(True, 1), (False, 0)])
def test_only_gated_claims_fail_the_command(
    gate: bool, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline = {"kernel": "sdpa-efficient", "acc": None}
    told = {"gate": gate, "select": baseline, "differs": "The moon was full."}
    entry = claim({"kind": "peak", **TFLOPS}, {"low": 999}, **told)
    path = write_claims(tmp_path / "claims.yaml", entry)
    folder = synthetic.write(tmp_path / "gpu", rows())
    assert main(["claims", "--claims", str(path), "--results", str(folder)]) == code
    out = capsys.readouterr().out
    assert "does not hold" in out
    assert "\n                 The moon was full.\n" in out  # ours has no setting to compare with


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrik": {}}, "metrik"),
        ({"metric": {"kind": "peak"}}, "`of` is needed"),
        ({"metric": {"kind": "step", "of": "tflops"}}, "`at` belongs"),
        ({"metric": {"kind": "step", "of": "tflops", "at": 320}}, "320 is none of 512, 576, 1024"),
        ({"expect": {}}, "low or high"),
        ({"source": "hearsay"}, "source"),
        ({"metric": {"kind": "every", "of": "tflops", "floors": {320: 1}}}, "give each D"),
        (
            {"metric": {"kind": "peak", "of": "tflops", "floors": {320: 1}}},
            "belongs to every tflops",
        ),
        ({"select": {"kernel": "x", "dtype": "better"}}, "needs select.headdim"),
    ],
)
def test_a_bad_claim_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    entry = claim({"kind": "peak", **TFLOPS}, {"low": 1}).model_dump(mode="json") | change
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump([entry]))
    with pytest.raises(ValueError, match=r"claims.yaml, claim test") as caught:
        load_claims(path)
    assert message in str(caught.value)


def test_ids_are_unique(tmp_path: Path) -> None:
    entry = claim({"kind": "failures"}, {"high": 0})
    with pytest.raises(ValueError, match="test is there twice"):
        load_claims(write_claims(tmp_path / "claims.yaml", entry, entry))


KEYS = {"headdim": "d", "seqlen_q": "n", "nheads_q": "h", "nheads_kv": "hkv"}
KEYS |= {"input_scale": "measure.input_scale", "value_mean": "measure.value_mean"}


def swept(experiment: str, overrides: list[str]) -> list[dict[str, Any]]:
    """The points of an experiment as its file, those of its shapes and a command give them."""
    folder = REPOSITORY / "conf"
    config = yaml.safe_load((folder / "experiment" / f"{experiment}.yaml").read_text())
    params = config["hydra"]["sweeper"]["params"] | dict(one.split("=") for one in overrides)
    axes = {
        key: [yaml.safe_load(value) for value in str(values).split(",")]
        for key, values in params.items()
    }
    fixed = {"n": config.get("n"), "h": config.get("h"), "causal": False, "dtype": "fp16"}
    points = []
    for values in itertools.product(*axes.values()):
        point = fixed | dict(zip(axes, values, strict=True))
        for group in {"shape", "kernels"} & set(point):
            point |= yaml.safe_load((folder / group / f"{point[group]}.yaml").read_text())
        points.append({"hkv": point["h"], **point})
    return points


def changed(entry: Claim) -> dict[str, Any]:
    """The point that a rate is compared with, in the words of the configuration."""
    select = entry.select.model_copy(update=entry.metric.changed)
    sizes = {key: getattr(select, name)[0] for name, key in KEYS.items() if getattr(select, name)}
    return sizes | {"causal": select.causal, "dtype": select.dtype}


@pytest.mark.parametrize("entry", load_claims(), ids=lambda entry: entry.id)
def test_project_claims_point_at_things_that_exist(entry: Claim) -> None:
    assert (REPOSITORY / "conf" / "experiment" / f"{entry.experiment}.yaml").exists()
    assert entry.where in {sheet.name for sheet in SHEETS}
    assert shlex.split(entry.command)[:3] == ["nox", "-s", "bench"]
    assert f"experiment={entry.experiment}" in entry.command
    points = swept(entry.experiment, shlex.split(entry.command)[5:])
    for name, key in KEYS.items():
        wanted = getattr(entry.select, name)
        assert set(wanted) <= {point[key] for point in points if key in point}, name
    if entry.metric.than:
        assert any(point.items() >= changed(entry).items() for point in points)
    assert not (entry.source == "paper" and entry.gate)
    assert (entry.source == "ours") or (entry.authors and entry.setting)


def test_this_projects_claims_gate_as_far_as_the_committed_rows_bear_them_out() -> None:
    results = Results.load(PAPER_FOLDER)
    for verdict in judge_all([one for one in load_claims() if one.source == "ours"], results):
        told = f"{verdict.claim.id}: {verdict.measured}; {verdict.why}"
        assert not verdict.fails, f"{told}: it does not hold, so set gate: false and say why"
        assert verdict.claim.gate or verdict.name != "holds", f"{told}: it holds, so set gate: true"


def peer_rows() -> list[Row]:
    """Three peers: one fast where it runs, one slower, one that runs nowhere."""
    ours = [row("split_d-sm80", "f32", dim, rate) for dim, rate in RATES.items()]
    return [
        *ours,
        *(row("sdpa-efficient", None, dim, 100.0) for dim in DIMS),
        *(row("flex", None, dim, 140.0 if dim == 512 else None) for dim in DIMS),
        *(row("sdpa-flash", None, dim) for dim in DIMS),
    ]


def test_over_peers_takes_the_fastest_that_ran_at_each_point() -> None:
    entry = claim({"kind": "every", "over": "peers", **SPEEDUP}, {"low": 1.35})
    verdict = judged(entry, peer_rows())
    assert verdict.name == "does not hold"  # 180 over 140 at D = 512
    assert "outside at D = 512" in verdict.why
    assert "fastest peer: FlexAttention, SDPA EA; could not run: SDPA flash" in verdict.why
    lower = entry.model_copy(update={"expect": Expect(low=1.2)})
    assert judged(lower, peer_rows()).name == "holds"


def test_over_several_takes_the_fastest_of_them_at_each_point() -> None:
    others = {320: 100.0, 512: 190.0, 576: 100.0, 1024: 100.0}
    f16 = [row("split_d-sm80", "f16", dim, rate) for dim, rate in others.items()]
    over = [{"kernel": "sdpa-efficient"}, {"kernel": "split_d-sm80", "acc": "f16"}]
    entry = claim({"kind": "every", "over": over, **SPEEDUP}, {"low": 1.0})
    verdict = judged(entry, [*rows(), *f16])
    assert verdict.name == "does not hold"  # 180 over 190 at D = 512, where EA has 100
    assert verdict.why == "outside at D = 512"
    slower = [row("split_d-sm80", "f16", dim, 90.0) for dim in DIMS]
    assert judged(entry, [*rows(), *slower]).name == "holds"
    missing = judged(entry, [*rows(), *slower[1:]])
    assert (missing.name, missing.measured) == ("not tested here", "")
    assert "D = 320" in missing.why


def test_errors_beside_what_the_model_allows_are_told_by_input_scale() -> None:
    """Of standard normal inputs with F32 sums it allows 5e-4 at every D."""
    recorded = [
        row("split_d-sm80", "f32", 512, 180.0, err_rel=2e-4),
        row("split_d-sm80", "f32", 512, 180.0, err_rel=3e-4, input_scale=4.0),
    ]
    entry = claim(
        {"kind": "every", "of": "err_rel", "over": "model"},
        {"high": 1.0},
        select={"headdim": [], "input_scale": [1, 4]},
    )
    verdict = judged(entry, recorded)
    assert (verdict.name, verdict.measured) == ("holds", "0.4 to 0.6")
    assert "0.02 % to 0.02 % for inputs × 1, 0.03 % to 0.03 % for inputs × 4" in verdict.why
    worse = row("split_d-sm80", "f32", 512, 180.0, err_rel=6e-4, input_scale=4.0)
    assert judged(entry, [recorded[0], worse]).name == "does not hold"


@pytest.mark.parametrize(("ours", "name"), [(0.0, "holds"), (1e-9, "does not hold")])
def test_an_exact_output_is_beside_an_exact_one_only(ours: float, name: str) -> None:
    recorded = [
        row("split_d-sm80", "f32", 512, 180.0, err_rel=ours),
        row("sdpa-efficient", None, 512, 100.0, err_rel=0.0),
    ]
    metric = {"kind": "every", "of": "err_rel", "over": {"kernel": "sdpa-efficient"}}
    entry = claim(metric, {"high": 2.0}, select={"headdim": [512]})
    assert judged(entry, recorded).name == name


def test_without_any_peer_nothing_is_claimed() -> None:
    entry = claim({"kind": "every", "over": "peers", **SPEEDUP}, {"low": 0.0})
    verdict = judged(entry, rows()[:4])
    assert verdict.name == "not tested here" and "no peer in the same runs" in verdict.why


def test_a_rate_relative_to_another_size() -> None:
    causal = [row("split_d-sm80", "f32", 512, 160.0, causal=True, nheads_kv=kv) for kv in (4, 32)]
    full = [row("split_d-sm80", "f32", 512, 180.0)]
    than = {"kind": "every", "than": {"causal": False}, **TFLOPS}
    select = {"headdim": [512], "causal": True, "nheads_kv": [32]}
    entry = claim(than, {"low": 0.85, "high": 0.93}, select=select)
    assert judged(entry, causal + full).name == "holds"
    verdict = judged(entry, causal)
    assert verdict.name == "not tested here" and "no rate with causal=False" in verdict.why


def test_a_rate_relative_to_another_contestant_that_computes_something_else() -> None:
    ours = [row("split_d-sm80", "f32", 512, 180.0)]
    # The time of 300 TFLOP/s of our operations, of which it does two thirds: 200 of its own.
    timed = row("ceiling-square", None, 512, 300.0)
    square = timed.model_copy(update={"tflops": 200.0})
    entry = claim(
        {"kind": "every", "than": {"kernel": "ceiling-square"}, **TFLOPS},
        {"low": 0.88, "high": 0.92},
        select={"headdim": [512]},
    )
    assert judged(entry, [*ours, square]).name == "holds"
    verdict = judged(entry, ours)
    assert verdict.name == "not tested here" and "no rate with square matmul" in verdict.why


def drifting(ratio: float, runs: tuple[str, str]) -> list[Row]:
    """D = 512 and 576 in three processes each, which a common drift of 6 % either way slows."""
    return [
        row("split_d-sm80", "f32", dim, 200 * speed * share, run_id=run, process=process)
        for dim, share, run in ((512, 1.0, runs[0]), (576, ratio, runs[1]))
        for process, speed in enumerate((1.0, 0.94, 1.06))
    ]


NEIGHBOURS = {"kind": "steps", **TFLOPS}


def test_neighbours_are_compared_process_by_process() -> None:
    entry = claim(NEIGHBOURS, {"low": 0.85}, select={"headdim": [512, 576]})
    verdict = judged(entry, drifting(0.89, ("run", "run")))
    assert (verdict.name, verdict.why) == ("holds", "")
    assert judged(entry, drifting(0.83, ("run", "run"))).name == "does not hold"


def test_neighbours_of_different_processes_are_compared_by_the_far_ends_and_it_is_said() -> None:
    entry = claim(NEIGHBOURS, {"low": 0.85}, select={"headdim": [512, 576]})
    verdict = judged(entry, drifting(0.89, ("run", "another")))
    assert verdict.name == "unclear"
    assert "no process measured both" in verdict.why and verdict.why.endswith("at D = 576")


FLOORS = {"kind": "every", "floors": dict.fromkeys(DIMS, 140.0), **TFLOPS}


def test_rates_against_a_floor_at_each_head_dimension() -> None:
    verdict = judged(claim(FLOORS, {"low": 0.95}), rows())
    assert verdict.name == "holds"
    assert verdict.measured.startswith("0.99") or verdict.measured.startswith("1")
    higher = {**FLOORS, "floors": {**FLOORS["floors"], 512: 200.0}}
    verdict = judged(claim(higher, {"low": 0.95}), rows())
    assert (
        verdict.name == "does not hold" and "outside at D = 512; TFLOP/s at 320: 15" in verdict.why
    )


def test_the_better_dtype_counts_at_each_head_dimension_and_is_named() -> None:
    bf16 = [
        row("split_d-sm80", "f32", dim, 1e3 if dim == 512 else 9.0, dtype="bf16") for dim in DIMS
    ]
    entry = claim(FLOORS, {"low": 0.95}, select={"dtype": "better"})
    verdict = judged(entry, [*rows(), *bf16])
    assert verdict.name == "holds"
    assert [word for word in verdict.why.split() if word.startswith(("fp16", "bf16"))] == [
        "fp16,", "bf16,", "fp16,", "fp16",
    ]  # fmt: skip
    assert judged(entry, bf16).name == "does not hold"
    failed = row("split_d-sm80", "f32", 320, status="wrong_result", reason="0.5", dtype="bf16")
    assert judged(entry, [*rows(), failed]).name == "holds"  # what another dtype fails at


def test_the_dtypes_are_never_averaged() -> None:
    bf16 = [row("split_d-sm80", "f32", dim, 1.0, dtype="bf16") for dim in DIMS]
    metric = {"kind": "every", **TFLOPS}
    assert judged(claim(metric, {"low": 130}), [*rows(), *bf16]).name == "holds"
    assert (
        judged(claim(metric, {"high": 2}, select={"dtype": "bf16"}), [*rows(), *bf16]).name
        == "holds"
    )


@pytest.mark.parametrize(("share", "name"), [(0.95, "holds"), (0.7, "does not hold")])
def test_causal_claims_compare_lengths_and_head_dimensions_alike(share: float, name: str) -> None:
    entries = [entry for entry in load_claims() if entry.experiment == "causal"]
    dims = {length: range(64, top + 1, 64) for length, top in ((8192, 1024), (16384, 512))}
    recorded = [
        row(entry.kernel, entry.acc, dim, rate, causal=causal, experiment="causal",
            seqlen_q=length, seqlen_k=length)
        for entry in {(one.select.kernel, one.select.acc): one.select for one in entries}.values()
        for length in dims
        for dim in dims[length]
        for causal, rate in ((False, 600.0), (True, 600.0 * share))
    ]  # fmt: skip
    assert len(entries) == 8
    assert {judged(entry, recorded).name for entry in entries} == {name}
    short = [one for one in recorded if one.seqlen_q == 8192]
    told = {entry.id: judged(entry, short).name for entry in entries}
    assert {key for key, verdict in told.items() if verdict == "not tested here"} == {
        "sm90-causal-f32-long", "sm90-causal-f16-long",
    }  # fmt: skip


def test_a_length_that_was_asked_for_and_not_recorded_is_not_tested() -> None:
    entry = claim(
        {"kind": "every", **TFLOPS}, {"low": 0}, select={"headdim": [], "seqlen_q": [4096, 8192]}
    )
    verdict = judged(entry, rows())
    assert (verdict.name, verdict.why) == ("not tested here", "no rows for seqlen_q = 4096")


def test_wrong_results_are_counted_apart_from_refusals() -> None:
    refused = row("split_d-sm80", "f32", 320)
    wrong = row("split_d-sm80", "f32", 512, 180.0, status="wrong_result", reason="0.5")
    entry = claim({"kind": "wrong"}, {"high": 0}, select={"headdim": [], "dtype": None})
    assert judged(entry, [refused]).name == "holds"
    verdict = judged(entry, [refused, wrong])
    assert (verdict.name, verdict.measured) == ("does not hold", "1")
    assert verdict.why == "D=512 B=1 H=32 N=8192 fp16: wrong_result (0.5)"


@pytest.mark.parametrize(
    ("told", "name"), [(None, "not tested here"), (True, "holds"), (False, "does not hold")]
)
def test_determinism_needs_rows_that_tell(told: bool | None, name: str) -> None:
    recorded = [row("split_d-sm80", "f32", dim, 100.0, repeats=told) for dim in DIMS]
    assert judged(claim({"kind": "changing"}, {"high": 0}), recorded).name == name


def test_what_is_the_same_at_every_head_dimension_has_no_trend() -> None:
    equal = [row("split_d-sm80", "f32", dim, 150.0) for dim in DIMS]
    verdict = judged(claim({"kind": "trend", "of": "err_rel"}, {"high": -0.5}), equal)
    assert (verdict.name, verdict.measured) == ("does not hold", "0")


def profiled(warps: dict[int, float], sources: str = SOURCES) -> Profiles:
    """Profiles of the rows below: their instances, at their shape."""
    (one,) = synthetic.profiles().profiles[:1]
    found = [
        one.model_copy(
            update={"kernel": "split_d-sm80", "instance": f"sm80/d{dim}", "headdim": dim,
                    "warps_per_sm": count, "bank_conflicts": 1, "shared_wavefronts": 4}
        )
        for dim, count in warps.items()
    ]  # fmt: skip
    return synthetic.profiles().model_copy(update={"source_hash": sources, "profiles": found})


def judged_with(profiles: Profiles, metric: dict[str, Any], expect: dict[str, float]) -> Verdict:
    recorded = [
        row("split_d-sm80", "f32", dim, 150.0, backend=f"sm80/d{dim}") for dim in (320, 512)
    ]
    environments = {ENV_HASH: synthetic.environment("9.0")}
    results = Results(Path("gpu"), tuple(recorded), environments, SOURCES, profiles)
    return judge(claim(metric, expect, select={"headdim": [320, 512]}), results)


def test_counters_come_from_the_profile_of_the_same_kernel_and_sources() -> None:
    falls = {"kind": "share_of_peak", "of": "warps", "at": 512}
    both = profiled({320: 16.0, 512: 8.0})
    assert judged_with(both, falls, {"high": 0.9}).measured == "0.5"
    conflicts = judged_with(both, {"kind": "every", "of": "conflicts"}, {"high": 0.1})
    assert (conflicts.name, conflicts.measured) == ("does not hold", "0.25")
    one = judged_with(profiled({320: 16.0}), falls, {"high": 0.9})
    assert (one.name, one.why) == ("not tested here", "no recorded profile for D = 512")
    other = judged_with(profiled({320: 16.0, 512: 8.0}, OTHER_SOURCES), falls, {"high": 0.9})
    assert other.name == "not tested here"


def test_registers_come_from_the_build_that_ran() -> None:
    recorded = [
        row("split_d-sm80", "f32", dim, 100.0, backend=f"split_d-sm80/d{dim}/fp16/f32")
        for dim in DIMS
    ]
    entry = claim({"kind": "every", "of": "registers"}, {"low": 168, "high": 255})
    verdict = judged(entry, recorded)
    assert (verdict.name, verdict.measured) == ("holds", "168 to 255")
    verdict = judged(entry, rows())
    assert verdict.name == "not tested here" and "no recorded build" in verdict.why


def test_an_input_scale_is_another_size() -> None:
    large = [row("split_d-sm80", "f32", dim, 100.0, input_scale=16.0) for dim in DIMS]
    entry = claim({"kind": "every", **TFLOPS}, {"low": 120})
    assert judged(entry, [*rows(), *large]).name == "holds"
    scaled = claim({"kind": "every", **TFLOPS}, {"low": 120}, select={"input_scale": [16]})
    assert judged(scaled, [*rows(), *large]).name == "does not hold"


def test_a_mean_of_value_is_another_size() -> None:
    moved = [row("split_d-sm80", "f32", dim, 100.0, value_mean=1.0) for dim in DIMS]
    entry = claim({"kind": "every", **TFLOPS}, {"low": 120})
    assert judged(entry, [*rows(), *moved]).name == "holds"
    other = claim({"kind": "every", **TFLOPS}, {"low": 120}, select={"value_mean": [1]})
    assert judged(other, [*rows(), *moved]).name == "does not hold"


def test_the_model_allows_f16_sums_of_values_with_a_mean_more() -> None:
    size = {"seqlen_q": 65536, "seqlen_k": 65536, "input_scale": 0.001}
    recorded = [
        row("split_d-sm80", "f16", 512, 180.0, err_rel=0.03, value_mean=mean, **size)
        for mean in (0.0, 1.3)
    ]
    metric = {"kind": "every", "of": "err_rel", "over": "model"}
    select = {"acc": "f16", "headdim": [], "value_mean": [1.3]}
    verdict = judged(claim(metric, {"high": 1.0}, select=select), recorded)
    assert (verdict.name, verdict.why) == (
        "holds",
        "relative errors: 3.00 % to 3.00 % for inputs × 0.001 values + 1.3",
    )
    plain = claim(metric, {"high": 1.0}, select=select | {"value_mean": [0]})
    assert judged(plain, recorded).name == "does not hold"


def test_what_differs_is_told_only_where_a_claim_does_not_hold() -> None:
    metric, differs = {"kind": "peak", **TFLOPS}, {"differs": "Another torch."}
    assert judged(claim(metric, {"low": 1}, **differs), rows()).explanation == ""
    assert judged(claim(metric, {"low": 999}, **differs), rows()).explanation == "Another torch."

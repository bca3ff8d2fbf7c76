"""The predicate against the list of compiled kernels, for every D, and the README's table of it."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ffpa import extension
from ffpa.problem import Problem
from ffpa.record.provenance import tree_source_hash
from ffpa.report import matrix
from ffpa.report.matrix import CALLS, DEVICES, as_compiled, matrix_block, smem_bytes_of
from ffpa.support import AUTO_ORDER, FEW_QUERIES, find
from ffpa_build import manifest

HOPPER, *_ = DEVICES.values()
SMEM_BYTES = json.loads(matrix.SMEM.read_text())
SHIPPED = [
    as_compiled(instance, SMEM_BYTES[instance.name])
    for instance in manifest.load(Path(__file__).parents[2])
    if instance.name in SMEM_BYTES
]


def serves(instance, problem, limits):
    """The rules once more, read off the list itself."""
    archs = {9: {"90", "90a"}, 8: {"80"}}[limits.capability[0]]
    masked = instance["variant"].startswith("masked")
    rows = problem.nheads_q // problem.nheads_kv * problem.seqlen_q
    splits = instance["splits"] and few(problem) and rows > 16  # limits tell no multiprocessors
    return (
        instance["id"] in AUTO_ORDER
        and (
            not instance["variant"]
            or instance["fallback"]
            or instance["narrow"]
            or masked
            or splits
        )
        and (problem.masked or not masked)
        and (instance["masks"] or not problem.masked)
        and (instance["dtype"], instance["acc"]) == (problem.dtype, problem.acc)
        and instance["headdim"] >= problem.headdim
        and archs & set(instance["archs"])
        and instance["smem_bytes"] <= limits.smem_bytes
        and (not instance["max_seqlen_k"] or problem.seqlen_k <= instance["max_seqlen_k"])
    )


def few(problem):
    return problem.seqlen_q <= 16 or problem.seqlen_q * problem.nheads_q * problem.batch <= 512


def order(problem, able):
    """Kernel ids as auto ranks them."""
    last = not few(problem) or any(i["splits"] for i in able)
    return sorted(AUTO_ORDER, key=lambda name: name == "split_kv-sm80" and last)


@pytest.mark.parametrize("limits", DEVICES.values(), ids=["sm_90", "sm_80", "sm_86"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seqlen_q", [1, FEW_QUERIES, FEW_QUERIES + 1, 8192])
@pytest.mark.parametrize("dtype, acc", [("fp16", acc) for acc in manifest.ACCS] + [("bf16", "f32")])
def test_the_predicate_agrees_with_the_registry(dtype, acc, seqlen_q, masked, limits):  # R13
    for headdim in range(8, 1025, 8):
        problem = Problem(
            dtype=dtype, acc=acc, headdim=headdim, masked=masked, seqlen_q=seqlen_q,
            seqlen_k=8192, batch=2, nheads_q=16, nheads_kv=4,
        )  # fmt: skip
        able = [i for i in SHIPPED if serves(i, problem, limits)]
        support = find(problem, limits, instances=SHIPPED)
        if not able:
            assert not support and support.reason
            continue
        ranks = order(problem, able)
        first = min(able, key=lambda i: ranks.index(i["id"]))["id"]
        split = any(i["splits"] for i in able)
        narrowest = min(i["headdim"] for i in able if i["id"] == first and i["splits"] == split)
        assert (support.kernel, support.instance["headdim"]) == (first, narrowest)


def test_the_readmes_table_has_an_answer_for_every_call():
    lines = matrix_block().splitlines()
    assert len(lines) == 2 + len(CALLS)
    for line, call in zip(lines[2:], CALLS, strict=True):
        cells = line.strip("|").split("|")
        assert cells[0].strip() == call and len(cells) == 1 + len(DEVICES)
        for cell in cells[1:]:
            parts = [part.split(": ")[0].split("–") for part in cell.strip().split("; ")]
            assert parts[0][0] == "8" and parts[-1][1] == "1024"
            for (_, last), (first, _) in itertools.pairwise(parts):
                assert int(first) == int(last) + 8  # no D without an answer
    assert "refused" not in "".join(lines[2:5])  # F32 sums without a mask


def test_what_is_refused_for_shared_memory_is_refused_with_both_numbers():
    """A mask on a device with less than the README's table has, and what that refuses."""
    *_, (little, limits) = DEVICES.items()
    assert "99 KiB" in little
    less = replace(limits, smem_bytes=64 * 1024)
    problem = Problem(
        dtype="fp16", batch=1, nheads_q=32, nheads_kv=8, seqlen_q=8192, seqlen_k=8192, headdim=576,
        masked=True,
    )  # fmt: skip
    assert find(problem, limits, instances=SHIPPED)
    refused = find(problem, less, instances=SHIPPED)
    assert not refused and "headdim 576 with an attn_mask takes " in refused.reason
    assert f"and the device has {less.smem_bytes}: leave the call to ffpa.sdpa" in refused.reason
    mixed = find(replace(problem, masked=False, acc="qk32_pv16"), limits, instances=SHIPPED)
    assert not mixed and f"has {limits.smem_bytes}: use acc=f32" in mixed.reason


def test_shared_memory_is_that_of_the_build():
    """Whatever is written down for the README."""
    pytest.importorskip("ffpa._C", reason="the extension is not built")
    info = extension.build_info()
    if info["kernel_filter"] or info["source_hash"] != tree_source_hash():
        pytest.skip("the extension is of a part of the kernels or of other sources")
    built = smem_bytes_of(extension.kernels())
    assert built == SMEM_BYTES, "docs/smem_bytes.json is out of date: run `nox -s report`"


def test_a_kernel_that_is_not_known_is_left_out_and_told(monkeypatch, tmp_path):
    few = {name: size for name, size in SMEM_BYTES.items() if not name.startswith("split_d-sm90")}
    monkeypatch.setattr(matrix, "SMEM", tmp_path / "smem_bytes.json")
    matrix.SMEM.write_text(json.dumps(few))
    block = matrix_block()
    assert "split_d-sm90" not in block
    assert f"Without {len(SMEM_BYTES) - len(few)} kernels that smem_bytes.json lacks" in block


def test_f16_sums_take_a_mask_in_little_shared_memory():
    """What fits into 99 KiB is known only once it is compiled, so by its name."""
    ampere = [i for i in SHIPPED if i["id"] == "split_d-sm80" and i["acc"] == "f16"]
    little = [i for i in ampere if i["variant"] == "masked99"]
    wide = [i for i in ampere if i["variant"] == "masked"]
    assert wide
    assert {i["headdim"] for i in little} == {i["headdim"] for i in wide if i["headdim"] > 128}


@pytest.mark.parametrize("headdim", range(8, 1025, 8))
def test_hopper_takes_a_mask_with_either_sum(headdim):
    def chosen(acc, seqlen_k=16384):
        problem = Problem(
            dtype="fp16", acc=acc, headdim=headdim, masked=True, seqlen_q=8192, seqlen_k=seqlen_k,
            batch=2, nheads_q=16, nheads_kv=4,
        )  # fmt: skip
        return find(problem, HOPPER, instances=SHIPPED).instance

    wide, narrow = chosen("f32"), chosen("f16")
    assert narrow["name"] == wide["name"].replace("/f32/", "/f16/")
    assert narrow["id"] == "split_d-sm90" and narrow["masks"]
    # Sums of more keys than that could stall there.
    assert chosen("f16", narrow["max_seqlen_k"] + 1)["id"] == "split_d-sm80"

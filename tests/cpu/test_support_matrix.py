"""The predicate against the list of compiled kernels, for every D, and the README's table of it."""

from pathlib import Path

import pytest

from ffpa.problem import Problem
from ffpa.report.readme import MATRIX_CALLS, MATRIX_DEVICES, _as_compiled, matrix_block
from ffpa.support import AUTO_ORDER, FEW_QUERIES, find
from ffpa_build import manifest

SHIPPED = [_as_compiled(instance) for instance in manifest.load(Path(__file__).parents[2])]
HOPPER, AMPERE = MATRIX_DEVICES.values()


def serves(instance, problem, limits):
    """The rules once more, read off the list itself."""
    archs = {(9, 0): {"90", "90a"}, (8, 0): {"80"}}[limits.capability]
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
        and (not instance["max_seqlen_k"] or problem.seqlen_k <= instance["max_seqlen_k"])
    )


def few(problem):
    return problem.seqlen_q <= 16 or problem.seqlen_q * problem.nheads_q * problem.batch <= 512


def order(problem, able):
    """Kernel ids as auto ranks them."""
    last = not few(problem) or any(i["splits"] for i in able)
    return sorted(AUTO_ORDER, key=lambda name: name == "split_kv-sm80" and last)


@pytest.mark.parametrize("limits", [HOPPER, AMPERE], ids=["sm_90", "sm_80"])
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
    assert len(lines) == 2 + len(MATRIX_CALLS)
    for line, call in zip(lines[2:], MATRIX_CALLS, strict=True):
        cells = line.strip("|").split("|")
        assert cells[0].strip() == call and len(cells) == 1 + len(MATRIX_DEVICES)
        assert all("8–" in cell and "1024: `" in cell for cell in cells[1:])
        assert "refused" not in line


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

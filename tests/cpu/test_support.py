"""The predicate: which instance a problem gets, and the sentence where there is none."""

from dataclasses import replace

import pytest
from emulator import H200, build, instance

from ffpa import extension
from ffpa.support import FEW_QUERIES, DeviceLimits, Problem, find

A100 = DeviceLimits((8, 0), 166912)
RTX4090 = DeviceLimits((8, 9), 101376)
SM90_NAMES = frozenset(i["name"] for i in build() if i["id"] == "split_d-sm90")
PROBLEM = Problem(
    dtype="fp16", batch=1, nheads_q=32, nheads_kv=32, seqlen_q=8192, seqlen_k=8192, headdim=512
)


def ask(limits=H200, kernel="auto", variant="", instances=None, **fields):
    return find(replace(PROBLEM, **fields), limits, kernel, variant, instances or build())


@pytest.mark.parametrize(
    "limits, headdim, chosen",
    [
        (H200, 512, "split_d-sm90/d512/fp16/f32"),
        (H200, 264, "split_d-sm90/d512/fp16/f32"),
        (H200, 520, "split_d-sm80/d576/fp16/f32"),  # no sm90 instance is wide enough
        (H200, 1024, "split_d-sm80/d1024/fp16/f32"),
        (replace(H200, unschedulable=SM90_NAMES), 512, "split_d-sm80/d512/fp16/f32"),
        (A100, 512, "split_d-sm80/d512/fp16/f32"),
        (A100, 8, "split_d-sm80/d64/fp16/f32"),
        (RTX4090, 1024, "split_d-sm80/d1024/fp16/f32/stages2"),  # sm_80 code, less memory
    ],
)
def test_auto_takes_the_newest_kernel_that_fits(limits, headdim, chosen):
    support = ask(limits, headdim=headdim)
    assert support and support.instance["name"] == chosen
    assert support.kernel == chosen.split("/")[0] and support.reason is None


def test_auto_takes_another_kernel_where_sums_would_stall():
    assert ask(acc="f16", seqlen_k=16384).kernel == "split_d-sm90"
    assert ask(acc="f16", seqlen_k=16385).kernel == "split_d-sm80"
    assert ask(acc="f32", seqlen_k=65536).kernel == "split_d-sm90"


@pytest.mark.parametrize(
    "limits, fields, variant",
    [
        (H200, {"seqlen_q": 4096}, "rows32"),  # 128 CTAs of 32 rows on 132 multiprocessors
        (H200, {"seqlen_q": 4224}, "rows32"),
        (H200, {"seqlen_q": 4225}, ""),  # 133 would take two turns, of 64 rows in all
        (H200, {"seqlen_q": 8448}, ""),  # two turns of 32 rows are one of 64
        (H200, {"seqlen_q": 8449}, "rows32"),  # three of 32 rows against two of 64
        (H200, {"seqlen_q": 64, "nheads_q": 330}, ""),  # five against three: it saves too little
        (H200, {"seqlen_q": 17, "batch": 2, "nheads_q": 66}, "rows32"),
        (H200, {"seqlen_q": 8192, "nheads_q": 32}, ""),
        (H200, {"seqlen_q": 4096, "headdim": 520}, "rows32"),
        (H200, {"seqlen_q": 4096, "headdim": 512, "kernel": "split_d-sm80"}, ""),  # has none
        (H200, {"seqlen_q": 4096, "kernel": "split_d-sm80/d576/fp16/f32"}, ""),  # named
        (replace(H200, multiprocessors=0), {"seqlen_q": 4096}, ""),
        (replace(H200, smem_bytes=101376), {"seqlen_q": 4096}, "stages2"),
        (replace(H200, smem_bytes=140000), {"seqlen_q": 4096}, "rows32"),
        (replace(H200, smem_bytes=140000), {"seqlen_q": 8448}, "stages2"),
    ],
)
def test_auto_takes_fewer_rows_where_that_saves_a_quarter(limits, fields, variant):
    few = {"headdim": 576, "nheads_q": 1, "nheads_kv": 1, **fields}
    assert ask(limits, **few).instance["variant"] == variant


@pytest.mark.parametrize(
    "limits, headdim, chosen",
    [
        (H200, 512, "split_kv-sm80/d512/fp16/f32"),
        (A100, 520, "split_kv-sm80/d1024/fp16/f32"),
        (RTX4090, 8, "split_kv-sm80/d512/fp16/f32"),
    ],
)
def test_auto_splits_the_keys_of_few_queries(limits, headdim, chosen):
    for seqlen_q in (1, FEW_QUERIES):
        assert ask(limits, headdim=headdim, seqlen_q=seqlen_q).instance["name"] == chosen
    many = ask(limits, headdim=headdim, seqlen_q=FEW_QUERIES + 1)
    assert many and many.kernel != "split_kv-sm80"
    named = ask(limits, "split_kv-sm80", headdim=headdim, seqlen_q=FEW_QUERIES + 1)
    assert named.instance["name"] == chosen


def test_few_queries_with_another_accumulator_take_another_kernel():
    assert ask(seqlen_q=1, acc="f16").kernel == "split_d-sm90"


@pytest.mark.parametrize(
    "sizes, few",
    [
        ({"seqlen_q": 16, "batch": 64}, True),
        ({"seqlen_q": 17}, False),  # in 32 heads
        ({"seqlen_q": 512, "nheads_q": 1, "nheads_kv": 1}, True),
        ({"seqlen_q": 513, "nheads_q": 1, "nheads_kv": 1}, False),
        ({"seqlen_q": 64, "nheads_q": 4, "nheads_kv": 1, "batch": 2}, True),
        ({"seqlen_q": 64, "nheads_q": 4, "nheads_kv": 1, "batch": 3}, False),
    ],
)
@pytest.mark.parametrize("limits, masked", [(A100, False), (A100, True)])
def test_what_few_queries_are(limits, masked, sizes, few):
    assert (ask(limits, masked=masked, **sizes).kernel == "split_kv-sm80") is few


LONG = {"nheads_kv": 4, "seqlen_q": 64, "seqlen_k": 32768}  # 16 tiles of 128 rows


@pytest.mark.parametrize(
    "fields, variant",
    [
        (LONG, "splits"),
        ({**LONG, "seqlen_q": 17}, "splits"),
        ({**LONG, "nheads_kv": 32}, "splits"),  # 32 tiles in two splits for 66 clusters
        ({**LONG, "seqlen_q": 1024}, ""),  # tiles are full, and as many as clusters
        ({**LONG, "batch": 8, "seqlen_k": 4096}, "splits"),  # no splits: tiles are half as many
        ({**LONG, "seqlen_k": 512}, ""),  # merging takes longer
        ({**LONG, "seqlen_k": 1024}, "splits"),
        ({**LONG, "causal": True}, ""),  # upper left: 64 keys are seen
        ({**LONG, "causal": True, "causal_align": "lower_right"}, "splits"),
        ({**LONG, "headdim": 264}, "splits"),
        ({**LONG, "masked": True}, "splits"),
        ({**LONG, "acc": "f16", "seqlen_k": 16384}, ""),
        ({**LONG, "seqlen_q": 4}, "splits"),  # 32 rows to a key head
        ({**LONG, "kernel": "split_d-sm90"}, "splits"),
        ({**LONG, "kernel": "split_d-sm90/d512/fp16/f32"}, ""),
        ({**LONG, "limits": replace(H200, multiprocessors=0)}, ""),
    ],
)
def test_keys_are_split_where_that_fills_the_device(fields, variant):
    support = ask(**fields)
    assert (support.kernel, support.instance["variant"]) == ("split_d-sm90", variant)


@pytest.mark.parametrize(
    "fields, kernel",
    [
        ({**LONG, "seqlen_q": 2}, "split_kv-sm80"),  # 16 rows to a key head, all of one tile
        ({**LONG, "nheads_kv": 32, "seqlen_q": 16}, "split_kv-sm80"),
        ({**LONG, "limits": A100}, "split_d-sm80"),
        ({**LONG, "headdim": 520}, "split_d-sm80"),
        ({**LONG, "kernel": "split_d-sm80"}, "split_d-sm80"),
    ],
)
def test_other_kernels_where_keys_cannot_be_split_or_need_not(fields, kernel):
    support = ask(**fields)
    assert support.kernel == kernel and not support.instance["splits"]


def test_a_splitting_instance_can_be_named():
    named = "split_d-sm90/d512/fp16/f32/splits"
    assert ask(kernel=named, seqlen_k=64).instance["name"] == named


def test_a_narrower_value_and_the_ladder():
    step = [instance("ladder-1-base", 128, "fp16", "f32", ["80", "90"])]
    fields = {"kernel": "ladder-1-base", "instances": step, "headdim": 128}
    assert ask(headdim_v=128, **fields)
    refused = ask(headdim_v=64, **fields)
    assert not refused and "headdim 64" in refused.reason and "pad value" in refused.reason


def test_a_build_of_that_kernel_alone_uses_it_for_many_queries():
    alone = [i for i in build() if i["id"] == "split_kv-sm80"]
    assert ask(instances=alone) and ask(instances=alone, masked=True)


@pytest.mark.parametrize(
    "limits, question, chosen",
    [
        (H200, {"headdim": 200}, "split_d-sm90/d512/fp16/f32/masked"),  # the better kernel, wider
        (H200, {"headdim": 512}, "split_d-sm90/d512/fp16/f32/masked"),
        (H200, {"headdim": 520}, "split_d-sm80/d1024/fp16/f32/masked"),
        (H200, {"headdim": 200, "acc": "f16"}, "split_d-sm80/d256/fp16/f16/masked"),
        (A100, {"headdim": 512, "seqlen_q": 1, "acc": "f16"}, "split_d-sm80/d1024/fp16/f16/masked"),
        (A100, {"headdim": 512, "seqlen_q": 1}, "split_kv-sm80/d512/fp16/f32"),
        (RTX4090, {"headdim": 512}, "split_kv-sm80/d512/fp16/f32"),  # less memory
        (H200, {"kernel": "split_kv-sm80"}, "split_kv-sm80/d512/fp16/f32"),
        (H200, {"kernel": "split_d-sm80"}, "split_d-sm80/d1024/fp16/f32/masked"),
    ],
)
def test_a_mask_takes_a_kernel_that_knows_masks(limits, question, chosen):
    assert ask(limits, masked=True, **question).instance["name"] == chosen


def test_only_a_mask_takes_what_is_there_for_masks():
    for kernel in ("auto", "split_d-sm80"):
        for headdim in range(8, 1025, 8):
            for limits in (H200, A100, RTX4090):
                support = ask(limits, kernel, headdim=headdim)
                assert support.instance["variant"] != "masked"
    named = "split_d-sm80/d256/fp16/f32/masked"
    assert ask(kernel=named, headdim=256).instance["name"] == named


@pytest.mark.parametrize(
    "question",
    [
        {"kernel": "split_d-sm90", "acc": "f16"},
        {"kernel": "naive"},
    ],
)
def test_masks_are_refused_in_words(question):
    refused = ask(masked=True, **question)
    assert not refused and "attn_mask is given" in refused.reason


@pytest.mark.parametrize(
    "kernel, variant, chosen",
    [
        ("split_d-sm80", "", "split_d-sm80/d512/fp16/f32"),
        ("split_d-sm80", "stages1", "split_d-sm80/d512/fp16/f32/stages1"),
        ("split_d-sm80/d576/fp16/f32/stages1", "", "split_d-sm80/d576/fp16/f32/stages1"),
        ("naive", "", "naive/d1024/fp16/f32"),
    ],
)
def test_a_kernel_can_be_named(kernel, variant, chosen):
    assert ask(kernel=kernel, variant=variant).instance["name"] == chosen


def test_auto_never_takes_a_variant_for_comparison():
    for headdim in range(8, 1025, 8):
        for limits in (H200, A100, RTX4090):
            assert ask(limits, headdim=headdim).instance["variant"] in ("", "stages2")


@pytest.mark.parametrize(
    "question, words",
    [
        ({"headdim": 65}, ("65", "multiple of 8", "1024", "pad")),
        ({"headdim": 1032}, ("1032", "1024")),
        ({"headdim": 0}, ("headdim 0",)),
        ({"nheads_q": 6, "nheads_kv": 4}, ("6", "4", "multiple")),
        ({"nheads_kv": 0}, ("32", "0 key/value heads")),
        ({"acc": "fp32"}, ("fp32", "f32", "qk32_pv16")),
        ({"acc": "f16", "dtype": "bf16"}, ("f16", "bf16", "acc=f32")),
        ({"causal_align": "bottom"}, ("bottom", "lower_right")),
        ({"seqlen_k": 2**31 - 8192}, ("2^31",)),
        ({"kernel": "flash"}, ("flash", "naive", "split_d-sm80", "split_d-sm90")),
        ({"kernel": "split_d-sm80", "variant": "x"}, ("'x'", "stages1")),
        ({"kernel": "naive", "acc": "f16"}, ("naive", "fp16 with acc=f16", "fp16 with acc=f32")),
        ({"acc": "qk16_pv32"}, ("this build", "qk16_pv32", "fp16 with acc=f16")),
        ({"kernel": "split_d-sm90", "headdim": 576}, ("576", "512", "split_d-sm90")),
        (
            {"kernel": "split_d-sm90", "acc": "f16", "seqlen_k": 16385},
            ("16385", "16384", "stall", "acc=f32"),
        ),
        ({"kernel": "split_d-sm90", "limits": A100}, ("sm_90a", "sm_80", "FFPA_CUDA_ARCHS")),
        (
            {"kernel": "split_d-sm90", "limits": replace(H200, unschedulable=SM90_NAMES)},
            ("512", "clusters", "split_d-sm90", "another kernel"),
        ),
        ({"limits": DeviceLimits((12, 0), 101376)}, ("sm_120", "sm_80, sm_90, sm_90a")),
        (
            {"limits": DeviceLimits((8, 0), 65536)},
            ("98304", "65536", "shared memory", "leave the call to ffpa.sdpa"),
        ),
        (
            {"limits": DeviceLimits((8, 0), 65536), "acc": "f16"},
            ("98304", "65536", "use acc=f32"),
        ),
        (  # a mask, where what takes one needs more memory than what takes none
            {"limits": RTX4090, "headdim": 520, "masked": True, "kernel": "split_d-sm80"},
            ("headdim 520 with an attn_mask", "163840", "101376", "choose another kernel"),
        ),
    ],
)
def test_a_refusal_says_what_was_given_and_what_is_allowed(question, words):
    support = ask(**question)
    assert not support and support.instance is None and support.kernel is None
    assert all(word in support.reason for word in words), support.reason
    assert "\n" not in support.reason and ". " not in support.reason  # one sentence


@pytest.mark.parametrize(
    "arch, capability, runs",
    [
        ("80", (8, 0), True),
        ("80", (8, 9), True),
        ("86", (8, 0), False),
        ("80", (9, 0), False),
        ("90a", (9, 0), True),
        ("90a", (9, 1), False),
        ("120", (12, 1), True),
    ],
)
def test_machine_code_runs_on_its_own_major_version(arch, capability, runs):
    instances = [{**build()[2], "archs": [arch]}]
    assert bool(ask(DeviceLimits(capability, 232448), headdim=64, instances=instances)) is runs


def test_an_empty_problem_is_supported():
    assert ask(batch=0) and ask(seqlen_k=0) and ask(nheads_q=0, nheads_kv=0)


@pytest.mark.parametrize("limits", [H200, A100], ids=["sm90", "sm80"])
@pytest.mark.parametrize("dtype, acc", [("fp16", "f32"), ("bf16", "f32"), ("fp16", "f16")])
def test_this_build_serves_every_head_dimension(limits, dtype, acc):
    pytest.importorskip("ffpa._C", reason="the extension is not built")
    info = extension.build_info()
    if info["kernel_filter"] or limits.arch.removeprefix("sm_") not in info["archs"]:
        pytest.skip(f"built for sm_{info['archs']}, kernels {info['kernel_filter'] or 'all'}")
    for headdim in range(8, 1025, 8):
        support = find(replace(PROBLEM, dtype=dtype, acc=acc, headdim=headdim), limits)
        assert support, support.reason
        assert support.instance["headdim"] >= headdim

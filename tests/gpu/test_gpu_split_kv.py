"""split_kv-sm80: any number of splits, empty ones among them, on any stream."""

import subprocess
import sys

import pytest
import torch
from harness import DEVICE, INSTANCES, assert_accurate, normal, over, poisoned, run_guarded

import ffpa
from ffpa.attention import launch
from ffpa.problem import mask_diagonal
from ffpa.reference import attention_reference

pytestmark = pytest.mark.gpu

SPLIT_KV = [instance for instance in INSTANCES if instance["id"] == "split_kv-sm80"]


@pytest.mark.parametrize("splits", [1, 2, 3, 7, 33, 200])
@pytest.mark.parametrize(
    "seqlen_q, seqlen_k, nheads_q, nheads_kv, align",
    [
        (1, 1, 1, 1, None),
        (1, 1000, 16, 2, None),
        (3, 130, 5, 1, "lower_right"),
        (17, 65, 6, 2, "upper_left"),
        (64, 33, 2, 2, "lower_right"),  # the first 31 rows see no key
    ],
)
@over(SPLIT_KV)
@pytest.mark.usefixtures("poisoned_workspace")
def test_any_number_of_splits(instance, seqlen_q, seqlen_k, nheads_q, nheads_kv, align, splits):
    headdim = instance["headdim"] - 8 * (splits % 5)
    q = normal(2, nheads_q, seqlen_q, headdim, dtype=instance["dtype"])
    k, v = (
        normal(2, nheads_kv, seqlen_k, headdim, dtype=instance["dtype"], seed=s) for s in (1, 2)
    )
    diagonal = mask_diagonal(seqlen_q, seqlen_k, align is not None, align)
    guarded = [poisoned(t) for t in (q, k, v)]
    out, lse = run_guarded(instance, *guarded, diagonal, splits=splits)
    assert_accurate(instance, out, lse, q, k, v, diagonal)
    again, _ = run_guarded(instance, *guarded, diagonal, splits=splits)
    assert again.equal(out)


def test_few_queries_take_it_by_default():
    q, k = normal(1, 8, 1, 512), normal(1, 1, 5000, 512, seed=1)
    out = ffpa.attention(q, k, k, enable_gqa=True)
    assert ffpa.last_kernel() == "split_kv-sm80/d512/fp16/f32"
    other = ffpa.attention(q, k, k, enable_gqa=True, kernel="split_d-sm80")
    torch.testing.assert_close(out, other, rtol=0, atol=1e-3)


def test_memory_is_that_of_the_splits():  # S08
    q, k = normal(1, 32, 1, 512, dtype="bf16"), normal(1, 4, 32768, 512, dtype="bf16")
    torch.cuda.reset_peak_memory_stats(DEVICE)
    before = torch.cuda.memory_allocated(DEVICE)
    ffpa.attention(q, k, k, enable_gqa=True)
    assert torch.cuda.max_memory_allocated(DEVICE) - before < 32 * 514 * 4 * 264


@pytest.mark.parametrize("align", ["upper_left", "lower_right"])
def test_all_kernels_share_one_triangle(align):  # S03
    q = normal(1, 16, 256, 512, dtype="bf16")
    k, v = (normal(1, 2, 1024, 512, dtype="bf16", seed=seed) for seed in (1, 2))
    options = {"is_causal": True, "causal_align": align, "enable_gqa": True}
    wide = [i for i in INSTANCES if i["headdim"] >= 512]
    kernels = sorted({i["id"] for i in wide if (i["dtype"], i["acc"]) == ("bf16", "f32")})
    exact = attention_reference(q, k, v, is_causal=True, causal_align=align)
    triangle = torch.ones(256, 1024, dtype=torch.bool, device=DEVICE)
    triangle = triangle.tril(0 if align == "upper_left" else 1024 - 256)
    outs = [ffpa.attention(q, k, v, kernel=kernel, **options) for kernel in kernels]
    outs.append(ffpa.attention(q, k, v, attn_mask=triangle, enable_gqa=True))
    for out in outs:
        torch.testing.assert_close(out.double(), exact, rtol=2e-2, atol=1e-2)


def test_the_callers_stream_is_used():  # R02: also for the memory between the two kernels
    q, k = normal(1, 8, 1, 512), normal(1, 1, 5000, 512)
    expected = ffpa.attention(q, k, k, enable_gqa=True)
    stream = torch.cuda.Stream(DEVICE)
    late = torch.full_like(q, torch.nan)
    torch.cuda.synchronize(DEVICE)
    with torch.cuda.stream(stream):
        for _ in range(100):
            late.fill_(torch.nan)
            torch.cuda._sleep(100_000)
            late.copy_(q)
            assert ffpa.attention(late, k, k, enable_gqa=True).equal(expected)


def test_a_launch_that_fails_raises():  # R10
    instance = SPLIT_KV[0]
    row = normal(1, 1, 1, 64, dtype=instance["dtype"])
    out = torch.full_like(row, 7.0)
    many = [t.expand(2**16, 2**16, 1, 64) for t in (row, row, row, out)]  # 2^32 CTAs
    with pytest.raises(RuntimeError, match=r"split_kv-sm80/.*cudaErrorInvalidConfiguration"):
        launch(instance, *many, None, 0.125, 0, splits=1)
    assert (out == 7).all()


def test_bad_sizes_end_a_process_with_an_exception():  # R15
    script = (
        "import torch, ffpa\n"
        "q = torch.zeros(1, 1, 4, 1032, device='cuda').half()\n"
        "ffpa.attention(q, q, q)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1 and "ValueError" in done.stderr and "1032" in done.stderr

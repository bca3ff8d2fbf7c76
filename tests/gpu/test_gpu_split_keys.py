"""split_d-sm90 with its keys split: any number of splits, heads packed into tiles, any layout."""

import pytest
import torch
from harness import DEVICE, INSTANCES, assert_accurate, normal, over, poisoned, run_guarded

import ffpa
from ffpa.problem import mask_diagonal

pytestmark = pytest.mark.gpu

SPLITTING = [instance for instance in INSTANCES if instance["splits"]]


@pytest.mark.parametrize("splits", [None, 1, 2, 5, 33])
@pytest.mark.parametrize(
    "batch, seqlen_q, seqlen_k, nheads_q, nheads_kv, align",
    [
        (2, 17, 3000, 16, 2, None),  # seven heads in a tile of 128 rows, and one
        (1, 33, 2049, 6, 2, "lower_right"),
        (1, 64, 4096, 4, 4, "lower_right"),
        (3, 64, 1000, 5, 1, None),  # a last tile of one head
        (1, 64, 33, 8, 1, "upper_left"),  # fewer keys than splits
        (1, 48, 20, 4, 2, "lower_right"),  # the first 28 rows see no key
        (2, 200, 777, 6, 3, "lower_right"),  # more queries than a tile has rows
    ],
)
@over(SPLITTING)
@pytest.mark.usefixtures("poisoned_workspace")
def test_any_number_of_splits(
    instance, batch, seqlen_q, seqlen_k, nheads_q, nheads_kv, align, splits
):
    headdim = instance["headdim"] - 8 * (seqlen_q % 3)
    headdim_v = headdim - 8 * (seqlen_q % 2) * (headdim // 16)
    q, k, v = (
        normal(*shape, dtype=instance["dtype"], seed=seed)
        for seed, shape in enumerate(
            [
                (batch, nheads_q, seqlen_q, headdim),
                (batch, nheads_kv, seqlen_k, headdim),
                (batch, nheads_kv, seqlen_k, headdim_v),
            ]
        )
    )
    diagonal = mask_diagonal(seqlen_q, seqlen_k, align is not None, align)
    guarded = [poisoned(t) for t in (q, k, v)]
    out, lse = run_guarded(instance, *guarded, diagonal, splits=splits)
    assert_accurate(instance, out, lse, q, k, v, diagonal)
    again, _ = run_guarded(instance, *guarded, diagonal, splits=splits)
    assert again.equal(out)


@over(SPLITTING)
def test_one_split_gives_the_bits_of_the_whole(instance):
    """Of a head alone, and of any layout: where a tile puts a row changes nothing."""
    q = normal(2, 6, 40, instance["headdim"], dtype=instance["dtype"])
    k = normal(2, 2, 1500, instance["headdim"], dtype=instance["dtype"], seed=1)
    out, lse = run_guarded(instance, q, k, k, 1499, splits=1)
    heads_apart = q.transpose(1, 2).contiguous().transpose(1, 2)
    for_each = [
        run_guarded(instance, q[:, h : h + 1], k[:, h // 3 : h // 3 + 1], k[:, h // 3 : h // 3 + 1],
                    1499, splits=1)
        for h in range(6)
    ]  # fmt: skip
    assert torch.cat([o for o, _ in for_each], 1).equal(out)
    assert torch.cat([each for _, each in for_each], 1).equal(lse)
    assert run_guarded(instance, heads_apart, k, k, 1499, splits=1)[0].equal(out)


def test_long_keys_take_it_by_default():
    q = normal(1, 32, 64, 512, dtype="bf16")
    k, v = (normal(1, 4, 32768, 512, dtype="bf16", seed=seed) for seed in (1, 2))
    out = ffpa.attention(q, k, v, enable_gqa=True)
    assert ffpa.last_kernel() == "split_d-sm90/d512/bf16/f32/splits"
    other = ffpa.attention(q, k, v, enable_gqa=True, kernel="split_d-sm80")
    torch.testing.assert_close(out, other, rtol=0, atol=2e-3)


def test_the_callers_stream_is_used():  # R02: also for the memory between the two kernels
    q, k = normal(1, 8, 64, 512), normal(1, 1, 20000, 512, seed=1)
    expected = ffpa.attention(q, k, k, enable_gqa=True)
    assert ffpa.last_kernel() == "split_d-sm90/d512/fp16/f32/splits"
    stream = torch.cuda.Stream(DEVICE)
    late = torch.full_like(q, torch.nan)
    torch.cuda.synchronize(DEVICE)
    with torch.cuda.stream(stream):
        for _ in range(100):
            late.fill_(torch.nan)
            torch.cuda._sleep(100_000)
            late.copy_(q)
            assert ffpa.attention(late, k, k, enable_gqa=True).equal(expected)


def test_a_graph_replays_both_kernels():
    q, k = normal(1, 8, 64, 512), normal(1, 1, 20000, 512, seed=1)
    options = {"enable_gqa": True, "return_lse": True}
    ffpa.attention(q, k, k, **options)
    assert ffpa.last_kernel() == "split_d-sm90/d512/fp16/f32/splits"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = ffpa.attention(q, k, k, **options)
    for _ in range(2):
        q.mul_(-0.5)
        out.fill_(torch.nan)
        graph.replay()
        expected = ffpa.attention(q, k, k, **options)
        assert out.equal(expected[0]) and lse.equal(expected[1])

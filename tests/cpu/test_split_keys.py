"""How the keys of few queries are split: enough CTAs, no split of nothing, and the memory."""

import pytest
import torch
from emulator import instance
from hypothesis import given, settings
from hypothesis import strategies as st

import ffpa
from ffpa.reference import attention_reference
from ffpa.split_keys import MIN_KEYS, count_splits, packed_tiles

SLOTS = 264  # two CTAs on each multiprocessor of an H200, as for 256 columns


@pytest.mark.parametrize(
    "tiles, seqlen_k, expected",
    [
        (4, 32768, 63),  # 252 of 264 CTAs
        (1, 32768, 251),
        (1, 1024, 16),  # 64 keys each
        (1, 1, 1),
        (264, 32768, 1),
        (200, 32768, 9),  # 1800 CTAs in seven waves of 264
    ],
)
def test_known_counts(tiles, seqlen_k, expected):
    assert count_splits(tiles, seqlen_k, SLOTS) == expected


@settings(derandomize=True, max_examples=200)
@given(st.integers(1, 2000), st.integers(1, 2**20), st.integers(1, 400))
def test_splits_have_keys_and_fill_the_device(tiles, seqlen_k, slots):
    splits = count_splits(tiles, seqlen_k, slots)
    assert 1 <= splits <= max(1, slots)
    assert splits == 1 or (splits - 1) * MIN_KEYS < seqlen_k
    if seqlen_k >= slots * MIN_KEYS:
        ctas = tiles * splits
        assert ctas >= 0.9 * -(-ctas // slots) * slots or splits == slots


@pytest.mark.parametrize("causal, splits", [(False, 8), (True, 1)])
def test_only_visible_keys_are_split(emulator, causal, splits):
    q, k = torch.randn(2, 6, 3, 72).half(), torch.randn(2, 2, 500, 72).half()
    out = ffpa.attention(q, k, k, is_causal=causal, enable_gqa=True)
    assert out.equal(attention_reference(q, k, k, is_causal=causal).half())
    assert emulator.launches[0][0] == "split_kv-sm80/d512/fp16/f32"
    assert emulator.splits == [splits]  # upper left: no query sees beyond the third key


@pytest.mark.parametrize(
    "headdim, splits", [(64, 251), (128, 126), (256, 63), (512, 63), (1024, 32)]
)
def test_few_columns_take_more_ctas(emulator, headdim, splits):
    q, k = torch.zeros(1, 4, 1, headdim).half(), torch.zeros(1, 4, 32768, headdim).half()
    ffpa.attention(q, k, k)
    assert emulator.splits == [splits]


@pytest.mark.parametrize(
    "sizes, tiles",
    [
        ((1, 32, 4, 64), 16),  # two heads of 64 queries in 128 rows
        ((1, 32, 4, 17), 8),  # seven heads of 17, and the eighth
        ((2, 5, 1, 33), 4),  # three and two
        ((3, 4, 4, 1), 12),
        ((1, 4, 2, 300), 12),  # each head has three tiles of its own
    ],
)
def test_heads_that_share_a_key_head_share_tiles(sizes, tiles):
    splitting = instance("split_d-sm90", 512, "fp16", "f32", ["90a"], Br=128, variant="splits")
    assert packed_tiles(splitting, *sizes) == tiles


@pytest.mark.parametrize(
    "nheads_kv, seqlen_q, seqlen_k, splits",
    [(4, 64, 32768, 4), (4, 17, 32768, 8), (32, 64, 32768, 2), (1, 64, 700, 3), (4, 64, 9, 1)],
)
def test_clusters_share_the_keys(emulator, nheads_kv, seqlen_q, seqlen_k, splits):
    q, k = torch.zeros(1, 32, seqlen_q, 264).half(), torch.zeros(1, nheads_kv, seqlen_k, 264).half()
    kernel = "split_d-sm90/d512/fp16/f32/splits"
    ffpa.attention(q, k, k, enable_gqa=True, kernel=kernel)
    assert emulator.launches[0][0] == kernel and emulator.splits == [splits]


def test_other_kernels_split_nothing(emulator):
    q = torch.randn(1, 1, 1, 64).half()
    k = torch.randn(1, 1, 5000, 64).half()
    ffpa.attention(q, k, k, kernel="split_d-sm80")
    assert emulator.launches[0][0].startswith("split_d-sm80") and emulator.splits == [1]

"""How the keys of few queries are split: enough CTAs, no split of nothing, and the memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ffpa
from ffpa.reference import attention_reference
from ffpa.split_keys import MIN_KEYS, count_splits

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


def test_other_kernels_split_nothing(emulator):
    q = torch.randn(1, 1, 1, 64).half()
    k = torch.randn(1, 1, 5000, 64).half()
    ffpa.attention(q, k, k, kernel="split_d-sm80")
    assert emulator.launches[0][0].startswith("split_d-sm80") and emulator.splits == [1]

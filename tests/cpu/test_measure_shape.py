"""FLOPs are counted over the pairs that the mask lets see (cases M04, M05)."""

import pytest

from ffpa.measure.shape import Shape, attention_flops, visible_pairs


def test_full_square():
    assert Shape(1, 32, 32, 8192, 8192, 512).flops == pytest.approx(4.398e12, rel=1e-4)


def test_causal_square_is_barely_above_half():
    full = Shape(1, 32, 32, 8192, 8192, 512)
    causal = Shape(1, 32, 32, 8192, 8192, 512, causal=True)
    assert causal.flops / full.flops == pytest.approx(0.50006, abs=1e-5)


@pytest.mark.parametrize(("align", "share"), [("lower_right", 0.9376), ("upper_left", 0.0626)])
def test_causal_rectangle_depends_on_the_alignment(align, share):
    assert visible_pairs(1024, 8192, True, align) / (1024 * 8192) == pytest.approx(share, abs=5e-5)


def test_rows_use_the_upper_left():
    assert Shape(1, 1, 1, 1024, 8192, 64, causal=True).flops == attention_flops(
        1, 1, visible_pairs(1024, 8192, True, "upper_left"), 64, 64
    )


def test_different_widths():
    assert attention_flops(1, 32, 8192**2, 576, 512) == pytest.approx(4.673e12, rel=1e-4)


@pytest.mark.parametrize("align", ["upper_left", "lower_right"])
@pytest.mark.parametrize("seqlen_q", range(1, 9))
@pytest.mark.parametrize("seqlen_k", range(1, 9))
def test_pairs_equal_a_count_by_hand(seqlen_q, seqlen_k, align):
    diagonal = 0 if align == "upper_left" else seqlen_k - seqlen_q
    seen = sum(column <= row + diagonal for row in range(seqlen_q) for column in range(seqlen_k))
    assert visible_pairs(seqlen_q, seqlen_k, True, align) == seen

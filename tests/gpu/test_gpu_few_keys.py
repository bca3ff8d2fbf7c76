"""Rows to which few keys matter, where the rounding of P does not average out."""

import pytest
import torch
from harness import Case, normal, over, relative_rms, run_guarded, sample
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ffpa.reference import attention_reference

pytestmark = pytest.mark.gpu

ROWS = 16
EXACT = ("f32", "qk16_pv32", "f16f32")  # O is F32, and a product by 1 needs no rounding


def inputs_of(instance, heads, seqlen):
    return [
        normal(1, heads, seqlen, instance["headdim"], dtype=instance["dtype"], seed=seed)
        for seed in range(3)
    ]


def with_exact_maximum(q, k, v):
    """F32 softmax whose P is rounded relative to the row's own maximum, as in torch's kernels."""
    hidden = torch.ones(q.shape[2], k.shape[2], device=q.device).triu(1).bool()
    scores = (q.double() @ k.double().mT * q.shape[3] ** -0.5).masked_fill(hidden, -torch.inf)
    p = (scores - scores.amax(-1, keepdim=True)).exp()
    return ((p.to(v.dtype).double() @ v.double()) / p.sum(-1, keepdim=True)).to(v.dtype)


@pytest.mark.parametrize("seqlen", [ROWS, 300])
@over(sample(64, 320, 512, 1024, acc=EXACT))
def test_a_row_of_one_key_is_v(instance, seqlen):
    q, k, v = inputs_of(instance, 8, seqlen)
    out, lse = run_guarded(instance, q, k, v, Case(seqlen, seqlen, mask="upper_left").diagonal)
    assert out[:, :, 0].equal(v[:, :, 0])
    if instance["acc"] == "f32":
        products = q[:, :, 0].double() * k[:, :, 0].double() * instance["headdim"] ** -0.5
        error = (lse[:, :, 0] - products.sum(-1)).abs()
        assert (error <= 1e-6 * products.abs().sum(-1)).all()


@over(sample(64, 320, 512, 1024, acc=("f32",)))
def test_few_keys_round_as_textbook_attention(instance):
    q, k, v = inputs_of(instance, 128, ROWS)
    out, _ = run_guarded(instance, q, k, v, 0)
    exact = attention_reference(q, k, v, is_causal=True)
    usual = with_exact_maximum(q, k, v)
    for row in range(1, ROWS):
        error = relative_rms(out[:, :, row], exact[:, :, row])
        assert error <= 1.1 * relative_rms(usual[:, :, row], exact[:, :, row])


def without_ladder(instances):
    """The ladder leaves dominant keys out: its softmax is the one that its steps explain."""
    return [instance for instance in instances if "ladder" not in instance["id"]]


@pytest.mark.parametrize("mask", ["full", "upper_left"])
@pytest.mark.parametrize("factor", [16, 64])
@over(without_ladder(sample(64, 128, 320, 512, 1024, acc=("f32", "qk32_pv16"))))
def test_one_key_that_outweighs_all_others(instance, factor, mask):
    q, k, v = inputs_of(instance, 4, 600)
    q, k = factor * q, factor * k
    out, lse = run_guarded(instance, q, k, v, Case(600, 600, mask=mask).diagonal)
    causal = mask != "full"
    exact, exact_lse = attention_reference(q, k, v, is_causal=causal, return_lse=True)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        usual = scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert relative_rms(out, exact) <= 2 * relative_rms(usual, exact) + 1e-7
    # A sum of D products in F32, 16 at a time, each step of which may round by half a unit.
    bound = max(1e-6, q.shape[3] / 16 * 2**-24)
    assert (lse - exact_lse).abs().max() <= bound * exact_lse.abs().max()

"""Rows that see few keys, where the rounding of P does not average out."""

import pytest
import torch
from harness import Case, normal, over, relative_rms, run_guarded, sample

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

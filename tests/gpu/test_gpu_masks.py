"""attn_mask in every kernel that takes one: its kinds, layouts and strides, against float64."""

import pytest
import torch
from harness import DEVICE, DTYPES, INSTANCES, normal, over, poisoned

import ffpa
from ffpa.numerics import error_bound
from ffpa.reference import attention_reference

pytestmark = pytest.mark.gpu

MASKED = [instance for instance in INSTANCES if instance["masks"]]


def masks(batch, nheads, seqlen_q, seqlen_k, dtype):
    """Masks by name; NaN and True lie where no mask is."""
    generator = torch.Generator(DEVICE).manual_seed(3)
    wide = torch.randn(batch, nheads, seqlen_q, seqlen_k + 2, generator=generator, device=DEVICE)
    values = wide[..., 1:-1]
    hidden = values < -0.5
    hidden[..., seqlen_q // 2, :] = True  # a row that sees nothing
    yield "bool", ~hidden
    yield "bool of keys", ~hidden[:, :1, :1]
    yield "bool of rows", ~hidden[..., :1]
    yield "transposed bool", (~hidden).mT.contiguous().mT
    wide[..., [0, -1]] = torch.nan
    yield "F32", values
    yield "F32 with -inf", values.masked_fill(hidden, -torch.inf)
    yield "F32 of one row", values[:1, :1, :1]
    yield "element", values.to(dtype)
    lowest = torch.finfo(dtype).min
    yield "element with the lowest number", values.masked_fill(hidden, lowest).to(dtype)
    halves = torch.arange(seqlen_k, device=DEVICE) < seqlen_k // 2
    for side, half in (("before", halves), ("after", ~halves)):
        far = (values + 100).masked_fill(half, torch.finfo(torch.float32).min)
        yield f"F32 far above the lowest numbers {side} it", far


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "seqlen_q, seqlen_k", [(1, 300), (5, 129), (33, 3000), (40, 77), (150, 260)]
)
@over(MASKED)
@pytest.mark.usefixtures("poisoned_workspace")
def test_masks(instance, seqlen_q, seqlen_k, causal):  # N07, N08, S12, S13, S14
    acc, headdim, dtype = instance["acc"], instance["headdim"] - 8, DTYPES[instance["dtype"]]
    bound = 5e-3 if instance["dtype"] == "bf16" else 8e-4
    bound = max(bound, error_bound(acc, instance["dtype"], seqlen_k, headdim))
    tolerance = 1e-4 if acc == "f32" else 2e-2
    q = normal(2, 6, seqlen_q, headdim, dtype=instance["dtype"])
    k, v = (normal(2, 3, seqlen_k, headdim, dtype=instance["dtype"], seed=s) for s in (1, 2))
    for name, mask in masks(2, 6, seqlen_q, seqlen_k, dtype):
        options = {"attn_mask": mask, "is_causal": causal, "return_lse": True}
        out, lse = ffpa.attention(
            *(poisoned(t) for t in (q, k, v)), enable_gqa=True, acc=acc,
            kernel=instance["name"], **options,
        )  # fmt: skip
        exact, exact_lse = attention_reference(q, k, v, **options)
        # Beside the lowest numbers F32 has no digits left for the scores, in torch as here.
        lost = exact_lse < -1e4
        unseen = exact_lse == -torch.inf
        assert lse[unseen].eq(-torch.inf).all() and not out[unseen].any(), name
        assert out.isfinite().all() and lse[lost & ~unseen].lt(-1e4).all(), name
        difference = (out.double() - exact)[~lost].norm()
        assert difference <= bound * exact[~lost].norm(), name
        if lost[~unseen].any():
            torch.testing.assert_close(out.double(), exact, rtol=0.1, atol=0.1, msg=name)
        torch.testing.assert_close(
            lse[~lost].double(), exact_lse[~lost], rtol=1e-6, atol=tolerance, msg=name
        )


@over(MASKED)
def test_a_window_counts_the_token_itself(instance):  # S26
    q = torch.zeros(1, 1, 8, instance["headdim"], device=DEVICE, dtype=DTYPES[instance["dtype"]])
    v = torch.arange(8, device=DEVICE).to(q.dtype)[:, None].expand_as(q).contiguous()
    distance = torch.arange(8, device=DEVICE)[:, None] - torch.arange(8, device=DEVICE)
    out = ffpa.attention(
        q, q, v, attn_mask=distance < 4, is_causal=True, acc=instance["acc"],
        kernel=instance["name"],
    )  # fmt: skip
    assert (out[0, 0, -1] - 5.5).abs().max() < 0.1


def test_nan_in_a_hidden_value_spreads():  # N11: as torch's; it is documented
    q = normal(1, 1, 4, 64)
    v = q.clone()
    v[0, 0, 3] = torch.nan
    mask = torch.tensor([True, True, True, False], device=DEVICE)
    assert ffpa.attention(q, q, v, attn_mask=mask).isnan().all()

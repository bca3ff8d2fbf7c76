"""The oracle against the definition, written out row by row, and against worked values."""

import math

import pytest
import torch

from ffpa.reference import attention_reference


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def plain(q, k, v, scale, last_key):
    """One head, float lists: softmax over the first last_key + 1 keys of each row."""
    out, lse = [], []
    for i, row in enumerate(q.tolist()):
        seen = range(min(last_key(i) + 1, len(k)))
        scores = [scale * dot(row, k[j].tolist()) for j in seen]
        weights = [math.exp(s - max(scores)) for s in scores]
        total = math.fsum(weights)
        columns = zip(*(v[j].tolist() for j in seen), strict=True)
        out.append([dot(weights, column) / total for column in columns])
        lse.append(max(scores) + math.log(total) if scores else -math.inf)
        out[-1] = out[-1] or [0.0] * v.shape[1]
    return torch.tensor(out, dtype=torch.float64), torch.tensor(lse, dtype=torch.float64)


@pytest.mark.parametrize("scale", [None, 0.3, 0.0, -0.5])
@pytest.mark.parametrize("mask", ["full", "upper_left", "lower_right"])
@pytest.mark.parametrize("seqlen_q, seqlen_k", [(5, 9), (9, 5), (1, 7), (6, 6)])
def test_it_is_the_definition(seqlen_q, seqlen_k, mask, scale):
    torch.manual_seed(0)
    q = torch.randn(2, 6, seqlen_q, 8)
    k, v = torch.randn(2, 2, seqlen_k, 8), torch.randn(2, 2, seqlen_k, 8)
    causal = {} if mask == "full" else {"is_causal": True, "causal_align": mask}
    out, lse = attention_reference(q, k, v, scale=scale, return_lse=True, row_chunk=4, **causal)
    shift = {"full": seqlen_k, "upper_left": 0, "lower_right": seqlen_k - seqlen_q}[mask]
    for b in range(2):
        for h in range(6):
            expected = plain(
                q[b, h], k[b, h // 3], v[b, h // 3], 8**-0.5 if scale is None else scale,
                lambda i: i + shift,
            )  # fmt: skip
            torch.testing.assert_close((out[b, h], lse[b, h]), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 6, 5, 9), (6, 1, 9), (5, 1), (9,)])
def test_masks(shape):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    mask = torch.randn(shape)
    mask.masked_fill_(mask > 1, -torch.inf)
    keys, values = (t.double().repeat_interleave(3, 1) for t in (k, v))
    scores = 0.3 * q.double() @ keys.mT + mask
    expected = scores.softmax(-1).nan_to_num() @ values, scores.logsumexp(-1)
    for rows in (None, torch.tensor([4, 0, 2])):
        chosen = slice(None) if rows is None else rows
        found = attention_reference(
            q, k, v, scale=0.3, attn_mask=mask, rows=rows, return_lse=True, row_chunk=2
        )
        for got, want in zip(found, expected, strict=True):
            torch.testing.assert_close(got, want[:, :, chosen], rtol=1e-12, atol=1e-12)
    visible = mask > -torch.inf
    expected = attention_reference(
        q, k, v, attn_mask=torch.zeros(shape).masked_fill_(~visible, -torch.inf)
    )
    assert attention_reference(q, k, v, attn_mask=visible).equal(expected)


def probe(seqlen_q, seqlen_k, **options):
    """q = k = 0 and V[n] = n: each row is the mean of the key indexes that it sees."""
    zeros = torch.zeros(1, 1, max(seqlen_q, seqlen_k), 8)
    v = torch.arange(seqlen_k, dtype=torch.float32)[:, None].expand(1, 1, seqlen_k, 8)
    out = attention_reference(zeros[:, :, :seqlen_q], zeros[:, :, :seqlen_k], v, **options)
    return out[0, 0, :, 0].tolist()


@pytest.mark.parametrize(
    "seqlen_q, seqlen_k, options, means",
    [
        (3, 3, {"is_causal": True, "scale": -1.0}, [0, 0.5, 1]),  # N06
        (1, 5, {"scale": 0.0}, [2]),
        (5, 2, {"is_causal": True}, [0, 0.5, 0.5, 0.5, 0.5]),  # N09
        (5, 2, {"is_causal": True, "causal_align": "lower_right"}, [0, 0, 0, 0, 0.5]),
        (2, 5, {"is_causal": True}, [0, 0.5]),  # S01
        (2, 5, {"is_causal": True, "causal_align": "lower_right"}, [1.5, 2]),
        (1, 8, {"is_causal": True}, [0]),  # S02
        (1, 8, {"is_causal": True, "causal_align": "lower_right"}, [3.5]),
        (2, 6, {"diagonal": 3}, [1.5, 2]),
    ],
)
def test_index_probes(seqlen_q, seqlen_k, options, means):
    assert probe(seqlen_q, seqlen_k, **options) == means


def test_the_logarithm_is_natural():  # N13
    q, v = torch.zeros(1, 1, 1, 64), torch.zeros(1, 1, 1024, 64)
    _, lse = attention_reference(q, v, v, return_lse=True)
    assert lse.item() == pytest.approx(6.931472, abs=1e-6)
    _, lse = attention_reference(q + 1, v + 1, v, scale=1 / 64, return_lse=True)
    assert lse.item() == pytest.approx(7.931472, abs=1e-6)


def test_a_sample_of_rows_is_those_rows():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 50, 16) for _ in range(3))
    rows = torch.tensor([49, 3, 3, 20])
    whole = attention_reference(q, k, v, is_causal=True, return_lse=True)
    sample = attention_reference(q, k, v, is_causal=True, return_lse=True, rows=rows, row_chunk=3)
    # Matrix products of other sizes may sum in another order.
    for got, want in zip(sample, whole, strict=True):
        torch.testing.assert_close(got, want[:, :, rows], rtol=1e-13, atol=1e-13)


def test_no_keys_and_no_rows():
    q, none = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 0, 8)
    out, lse = attention_reference(q, none, none, return_lse=True)
    assert out.shape == q.shape and not out.any() and (lse == -torch.inf).all()
    assert attention_reference(none, q, q).shape == none.shape

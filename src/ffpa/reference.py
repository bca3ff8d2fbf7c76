"""The oracle: attention in float64, written from the definition and not from torch's kernels."""

import math
from typing import Literal, overload

import torch
from torch import Tensor

from ffpa.problem import mask_diagonal


@overload
def attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = ...,
    scale: float | None = ...,
    causal_align: str = ...,
    diagonal: int | None = ...,
    attn_mask: Tensor | None = ...,
    rows: Tensor | None = ...,
    return_lse: Literal[False] = ...,
    row_chunk: int = ...,
) -> Tensor: ...


@overload
def attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = ...,
    scale: float | None = ...,
    causal_align: str = ...,
    diagonal: int | None = ...,
    attn_mask: Tensor | None = ...,
    rows: Tensor | None = ...,
    return_lse: Literal[True],
    row_chunk: int = ...,
) -> tuple[Tensor, Tensor]: ...


def attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    causal_align: str = "upper_left",
    diagonal: int | None = None,
    attn_mask: Tensor | None = None,
    rows: Tensor | None = None,
    return_lse: bool = False,
    row_chunk: int = 1024,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(query @ key^T * scale) @ value in float64, on the tensors' device.

    query is (B, Hq, Nq, D), key (B, Hkv, Nk, D) and value (B, Hkv, Nk, Dv), of any dtype, Hkv
    dividing Hq. Returns (B, Hq, Nq, Dv) and, if asked, the natural log of the softmax denominator
    (B, Hq, Nq). Row i sees the keys j <= i + `diagonal`, which `is_causal` and `causal_align` set
    where it is None; a row that sees none gives zeros and lse -inf. `attn_mask`, broadcast to
    (B, Hq, Nq, Nk) of the whole query, is added to the scores, or as bool tells which count.

    `rows` picks query rows (indexes into Nq, in any order) and makes Nq their number: how a long
    sequence is checked on a sample. Memory beyond the result is one head of key and value in
    float64 and Hq/Hkv · `row_chunk` · Nk scores.
    """
    batch, nheads_q, seqlen_q, headdim = query.shape
    nheads_kv, seqlen_k = key.shape[1:3]
    group = nheads_q // max(nheads_kv, 1)
    if scale is None:
        scale = 1 / math.sqrt(headdim)
    if diagonal is None:
        diagonal = mask_diagonal(seqlen_q, seqlen_k, is_causal, causal_align)
    if rows is None:
        rows = torch.arange(seqlen_q, device=query.device)

    shape = (batch, nheads_q, len(rows))
    out = torch.zeros(*shape, value.shape[3], dtype=torch.float64, device=query.device)
    lse = torch.full(shape, -torch.inf, dtype=torch.float64, device=query.device)
    rows = rows.to(query.device)
    last_key = rows + diagonal
    if attn_mask is not None:
        attn_mask = attn_mask.expand(batch, nheads_q, seqlen_q, seqlen_k)
    for b in range(batch if seqlen_k else 0):
        for h in range(nheads_kv):
            heads = slice(h * group, (h + 1) * group)
            k, v = key[b, h].double(), value[b, h].double()
            for start in range(0, len(rows), row_chunk):
                chunk = slice(start, start + row_chunk)
                q = query[b, heads, rows[chunk]].double()
                mask = None if attn_mask is None else attn_mask[b, heads, rows[chunk]]
                out[b, heads, chunk], lse[b, heads, chunk] = _rows(
                    q, k, v, scale, last_key[chunk], mask
                )
    return (out, lse) if return_lse else out


def _rows(
    q: Tensor, k: Tensor, v: Tensor, scale: float, last_key: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """q [heads, rows, D], k [Nk, D], v [Nk, Dv], last_key [rows], mask [heads, rows, Nk]."""
    scores = (q @ k.T).mul_(scale)
    if mask is not None and mask.dtype == torch.bool:
        scores.masked_fill_(~mask, -torch.inf)
    elif mask is not None:
        scores += mask
    hidden = torch.arange(k.shape[0], device=k.device) > last_key[:, None]
    # Masked after scaling: a scale of zero or below would turn -inf into NaN or +inf.
    scores.masked_fill_(hidden, -torch.inf)
    # A row without keys has a maximum of -inf; a base of 0 instead keeps its exponents at 0.
    base = scores.amax(-1, keepdim=True)
    base.masked_fill_(base == -torch.inf, 0.0)
    weights = scores.sub_(base).exp_()
    total = weights.sum(-1, keepdim=True)
    lse = (base + total.log()).squeeze(-1)
    return (weights @ v).div_(total.clamp_(min=torch.finfo(total.dtype).tiny)), lse

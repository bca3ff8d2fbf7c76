"""The kernels' arithmetic on the CPU: sums rounded where split_d-sm80 rounds them.

Exact products are summed in groups of 16, one MMA step; what happens to the sum depends on `acc`:

    acc         QK^T                              PV, per Bk keys               O kept in
    f32         F32                               F32                           F32
    qk16_pv32   F16 after each step               F32                           F32
    qk32_pv16   F32                               F16 after each step           F16
    f16         F16 after each step               F16 after each step           F16
    f16f32      F16, into F32 every Bd columns    F16 after each step           F32

Softmax is F32. A row's base in the exponent moves when the maximum passes it: by a whole number,
which scales O by a power of two, or, where that would be more than FAR_MOVE, to the maximum itself.
Then the largest P is exactly 1, and one key that outweighs all others gives its V. P is rounded to
the input dtype after it was summed. O in F16 is kept divided by 2^e, e growing with the keys seen,
so that it stays in range whatever the sequence length.
"""

import math
from dataclasses import dataclass
from typing import Literal, overload

import torch
from torch import Tensor

from ffpa.inputs import positive_scale
from ffpa.problem import mask_diagonal

STEP = 16  # columns of QK^T, or keys of PV, that one MMA sums
FAR_MOVE = 8.0  # of a base; it is also what F32 sums let the maximum pass the base by
MAX_BD = 192  # the longest chain of QK^T columns in a shipped f16f32 kernel
MAX_ADDENDS = 2048  # of an F16 sum of PV; with more keys than that allows a kernel refuses


@dataclass(frozen=True)
class Rounding:
    """Whether a chain of MMA steps, and O between the chains, is F16; the rest is F32."""

    qk_f16: bool
    pv_f16: bool
    out_f16: bool
    flush_qk: bool = False


ROUNDINGS = {
    "f32": Rounding(False, False, False),
    "qk16_pv32": Rounding(True, False, False),
    "qk32_pv16": Rounding(False, True, True),
    "f16": Rounding(True, True, True),
    "f16f32": Rounding(True, True, False, flush_qk=True),
}


@overload
def attention_model(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    acc: str = ...,
    Bc: int = ...,
    Bk: int = ...,
    Bd: int = ...,
    is_causal: bool = ...,
    scale: float | None = ...,
    causal_align: str = ...,
    rows: Tensor | None = ...,
    return_lse: Literal[False] = ...,
) -> Tensor: ...


@overload
def attention_model(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    acc: str = ...,
    Bc: int = ...,
    Bk: int = ...,
    Bd: int = ...,
    is_causal: bool = ...,
    scale: float | None = ...,
    causal_align: str = ...,
    rows: Tensor | None = ...,
    return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def attention_model(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    acc: str = "f32",
    Bc: int = 64,
    Bk: int = 32,
    Bd: int = 64,
    is_causal: bool = False,
    scale: float | None = None,
    causal_align: str = "upper_left",
    rows: Tensor | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """What `ffpa.attention` returns on a GPU, to rounding, computed on the CPU.

    query (B, Hq, Nq, D), key (B, Hkv, Nk, D) and value (B, Hkv, Nk, Dv) in fp16 or bf16, Hkv
    dividing Hq, Nk > 0. Tiles are Bc keys, F16 chains of PV Bk keys, and those of QK^T in f16f32 Bd
    columns. `rows` picks query rows and makes Nq their number.
    Returns the output in the dtype of query, and if asked the F32 log-sum-exp (B, Hq, Nq).
    """
    rounding = ROUNDINGS[acc]
    seqlen_q, seqlen_k = query.shape[2], key.shape[2]
    rows = torch.arange(seqlen_q) if rows is None else rows
    last_key = rows + mask_diagonal(seqlen_q, seqlen_k, is_causal, causal_align)
    query, scale = positive_scale(query[:, :, rows], scale)

    # The heads of a group share key and value, so they are rows of one product.
    batch, nheads_kv, _, headdim = key.shape
    nheads_q = query.shape[1]
    group = nheads_q // nheads_kv
    q = query.float().reshape(batch, nheads_kv, group * len(rows), headdim)
    k, v = key.float(), value.float()
    scores, factor = _scores(q, k, scale, rounding, Bd)
    hidden = torch.arange(seqlen_k) > last_key.repeat(group)[:, None]
    exponents = (scores * factor).masked_fill_(hidden, -torch.inf)
    out, lse = _softmax_pv(exponents, v, query.dtype, rounding, Bc, Bk)

    shape = (batch, nheads_q, len(rows))
    out, lse = out.reshape(*shape, v.shape[-1]), lse.reshape(shape)
    return (out, lse) if return_lse else out


def error_bound(
    acc: str,
    dtype: str,
    seqlen_k: int,
    headdim: int,
    input_scale: float = 1.0,
    value_mean: float = 0.0,
) -> float:
    """A bound on ‖out - exact‖ / ‖exact‖ for normal inputs, query and key times a scale, and value
    with a mean.

    Rounding P and the output costs a constant; F16 sums of QK^T grow with √headdim, those of PV
    with √seqlen_k. Larger query and key make larger scores, whose rounding errors are relative
    errors of P; but fewer keys count then, so that the output's grow about as the scale does and
    not as its square. Values of a mean make F16 sums of PV stall. The factors are about 1.5 times
    what `attention_model` shows.
    """
    rounding = ROUNDINGS[acc]
    constant = 5e-4 if dtype == "fp16" else 4e-3
    columns = min(headdim, MAX_BD) if rounding.flush_qk else headdim
    qk = 1.2e-4 * math.sqrt(columns) if rounding.qk_f16 else 0.0
    if input_scale > 1:
        qk *= min(input_scale**1.5, 2 * input_scale)
    pv = 4e-5 * math.sqrt(seqlen_k) if rounding.out_f16 else 0.0
    stall = stall_bound(seqlen_k, value_mean) if rounding.out_f16 else 0.0
    return math.hypot(constant, qk, pv, stall)


def stall_bound(seqlen_k: int, value_mean: float) -> float:
    """A bound on the relative error of an F16 sum of equal weights whose addends are lost alike.

    The sum grows with every addend, and so does its unit in the last place: at the end that is up
    to `unit` addends. Where all addends are nearly the same they are all rounded the same way, by
    up to half a unit each. What differs between them, values of deviation 1 around their mean,
    evens that out: of rounding to integers a normal variable of deviation s, the mean error falls
    as exp(-2 π² s²). Earlier units are smaller, and few addends are half a unit off: over a whole
    sum less than a quarter of the worst is left, whatever the mantissa of the mean.
    """
    if value_mean == 0:
        return 0.0
    addends = min(seqlen_k / STEP, MAX_ADDENDS)
    unit = addends * torch.finfo(torch.float16).eps
    deviation = 1 / (abs(value_mean) * math.sqrt(seqlen_k / addends))
    return unit / 2 / 4 * math.exp(-2 * (math.pi * deviation / unit) ** 2)


def _round_f16(x: Tensor) -> Tensor:
    """Round to nearest even, overflow to infinity, and go on in F32."""
    return x.half().float()


def _scores(
    q: Tensor, k: Tensor, scale: float, rounding: Rounding, Bd: int
) -> tuple[Tensor, float]:
    """QK^T [.., rows, Nk] and the factor that turns it into exponents of 2."""
    scale_log2 = scale * math.log2(math.e)
    if not rounding.qk_f16:
        return q @ k.mT, scale_log2
    # Scaling by a power of two first keeps the sum in F16's range, and rounds only subnormals.
    shift = min(max(math.floor(math.log2(scale_log2)), -14), 0)
    q = _round_f16(q * 2.0**shift)
    headdim = q.shape[-1]
    length = Bd if rounding.flush_qk else headdim
    scores = torch.zeros(())
    for start in range(0, headdim, length):
        columns = slice(start, start + length)
        scores = scores + _chain(q[..., columns], k[..., columns].mT)
    return scores, scale_log2 * 2.0**-shift


def _chain(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, the running sum rounded to F16 after every 16 products."""
    total = torch.zeros(())
    for start in range(0, a.shape[-1], STEP):
        step = slice(start, start + STEP)
        total = _round_f16(total + a[..., step] @ b[..., step, :])
    return total


def _softmax_pv(
    exponents: Tensor, v: Tensor, dtype: torch.dtype, rounding: Rounding, Bc: int, Bk: int
) -> tuple[Tensor, Tensor]:
    """Online softmax over tiles of Bc keys: exponents [.., rows, Nk], v [.., Nk, D]."""
    seqlen_k = v.shape[-2]
    threshold = 0.0 if rounding.pv_f16 else FAR_MOVE
    round_out = _round_f16 if rounding.out_f16 else lambda x: x
    base = torch.full((*exponents.shape[:-1], 1), -torch.inf)
    row_sum = torch.zeros_like(base)
    out = torch.zeros(*exponents.shape[:-1], v.shape[-1])
    e = 0
    for start in range(0, seqlen_k, Bc):
        tile = exponents[..., start : start + Bc]
        top = tile.amax(-1, keepdim=True)
        rise = top - base  # NaN, which moves nothing, before the first key
        moved = top.where(rise > FAR_MOVE, base + rise.ceil())
        decay = torch.exp2(base - moved).where(rise > threshold, 1.0)
        base = moved.where(rise > threshold, base)
        # A row that has seen no key has no base yet: 0 keeps its exponents at -inf, not NaN.
        p = torch.exp2(tile - base.masked_fill(base == -torch.inf, 0.0))
        row_sum = row_sum * decay + p.sum(-1, keepdim=True)
        out = round_out(out * decay)
        p = p.to(dtype).float()
        if rounding.out_f16:
            grown = max(0, math.ceil(math.log2(start + Bc)) - 5)
            out = round_out(out * 2.0 ** (e - grown))
            e = grown
        length = Bk if rounding.pv_f16 else Bc
        for first in range(0, tile.shape[-1], length):
            weights = p[..., first : first + length]
            values = v[..., start + first : start + first + length, :]
            part = _chain(weights, values) if rounding.pv_f16 else weights @ values
            out = round_out(out + part * 2.0**-e)
    unseen = row_sum == 0  # and not NaN: an overflow has to show
    result = (out * 2.0**e / row_sum).masked_fill_(unseen, 0.0).to(dtype)
    lse = (base + row_sum.log2()) * math.log(2)
    return result, lse.squeeze(-1)

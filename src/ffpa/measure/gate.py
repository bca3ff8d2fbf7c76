"""Is the output right? Compared with the float64 reference on a sample of query rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ffpa.numerics import error_bound
from ffpa.record import AccName
from ffpa.reference import attention_reference

from .inputs import Inputs

FLOOR = 1e-5  # relative error allowed even where half precision itself makes none


@dataclass(frozen=True)
class Error:
    """Error of an output against the reference."""

    relative: float  # root-mean-square error over the root mean square of the reference
    maximum: float  # largest absolute error

    @property
    def finite(self) -> bool:
        """Whether every element compared was a number."""
        return math.isfinite(self.relative) and math.isfinite(self.maximum)


def error_of(output: Tensor, reference: Tensor) -> Error:
    """Error of `output` (any dtype) against `reference` (float64) of the same shape."""
    difference = output.double() - reference
    scale = reference.square().mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    relative = difference.square().mean().sqrt() / scale
    return Error(float(relative), float(difference.abs().max()))


def plain_attention(inputs: Inputs, rows: Tensor) -> Tensor:
    """Textbook attention in the inputs' own dtype, every intermediate rounded to it, at `rows`.

    Its error is what half precision costs anyone; kernels are judged against it. Returns
    (batch, nheads_q, len(rows), headdim).
    """
    query, key, value = inputs.query[:, :, rows], inputs.key, inputs.value
    batch, nheads_q, count, headdim = query.shape
    grouped = query.reshape(batch, key.shape[1], -1, headdim)
    scores = (grouped * headdim**-0.5) @ key.transpose(-2, -1)
    if inputs.shape.causal:
        hidden = torch.arange(key.shape[2], device=rows.device) > rows[:, None]
        scores = scores.view(batch, nheads_q, count, -1).masked_fill(hidden, -math.inf)
        scores = scores.view(batch, key.shape[1], -1, key.shape[2])
    weights = scores.float().softmax(-1).to(value.dtype)
    output: Tensor = (weights @ value).view(batch, nheads_q, count, headdim)
    return output


class Gate:
    """The oracle of one point, computed once and asked for every contestant."""

    def __init__(
        self, inputs: Inputs, row_count: int, seed: int, input_scale: float, value_mean: float
    ) -> None:
        shape = inputs.shape
        generator = torch.Generator().manual_seed(seed)
        picked = torch.randperm(shape.seqlen_q, generator=generator)[:row_count].sort().values
        # The first and the last row are where masks and tails go wrong.
        picked[0], picked[-1] = 0, shape.seqlen_q - 1
        self.rows = picked.to(inputs.query.device)
        self.reference = attention_reference(
            inputs.query,
            inputs.key,
            inputs.value,
            is_causal=shape.causal,
            causal_align="upper_left",
            rows=self.rows,
        )
        plain = error_of(plain_attention(inputs, self.rows), self.reference)
        self.half_precision = plain.relative
        self._dtype = shape.dtype
        self._sizes = (shape.seqlen_k, shape.headdim, input_scale, value_mean)

    def error(self, output: Tensor) -> Error:
        """Error of a whole output (batch, nheads_q, seqlen_q, headdim)."""
        return error_of(output[:, :, self.rows], self.reference)

    def bound(self, acc: AccName | None) -> float:
        """The relative error allowed: twice plain half precision's, and what F16 sums add."""
        bound = 2 * self.half_precision + FLOOR
        if acc is not None and acc != "f32":
            bound += error_bound(acc, self._dtype, *self._sizes)
        return bound

    def fault(self, error: Error, acc: AccName | None) -> str | None:
        """Why an error is too large; None when it is within the bound."""
        if not error.finite:
            return "the output holds NaN or infinity"
        if error.relative > (bound := self.bound(acc)):
            return f"relative error {error.relative:.2e} is above the bound {bound:.2e}"
        return None

"""Random normal inputs from a recorded seed: zeros or patterns would draw less power."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .shape import Shape


@dataclass(frozen=True)
class Inputs:
    """query (B, Hq, Nq, D), key and value (B, Hkv, Nk, D) of one shape."""

    shape: Shape
    query: Tensor
    key: Tensor
    value: Tensor


def make_inputs(
    shape: Shape, device: torch.device, seed: int, scale: float = 1.0, value_mean: float = 0.0
) -> Inputs:
    """Normal: query and key with deviation `scale` around 0, value with 1 around `value_mean`."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(heads: int, length: int, deviation: float, mean: float = 0.0) -> Tensor:
        size = (shape.batch, heads, length, shape.headdim)
        return torch.empty(size, dtype=shape.torch_dtype, device=device).normal_(
            mean, deviation, generator=generator
        )

    return Inputs(
        shape,
        normal(shape.nheads_q, shape.seqlen_q, scale),
        normal(shape.nheads_kv, shape.seqlen_k, scale),
        normal(shape.nheads_kv, shape.seqlen_k, 1.0, value_mean),
    )

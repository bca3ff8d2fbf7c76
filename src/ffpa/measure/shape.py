"""The shape of an attention problem, and the work it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from ffpa.record import DTypeName

TORCH_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Shape:
    """query (batch, nheads_q, seqlen_q, headdim), key and value with nheads_kv and seqlen_k."""

    batch: int
    nheads_q: int
    nheads_kv: int
    seqlen_q: int
    seqlen_k: int
    headdim: int
    causal: bool = False
    dtype: DTypeName = "fp16"

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch names it."""
        return TORCH_DTYPES[self.dtype]

    @property
    def flops(self) -> int:
        """Floating-point operations of both products over the pairs that the mask lets see."""
        pairs = visible_pairs(self.seqlen_q, self.seqlen_k, self.causal)
        return attention_flops(self.batch, self.nheads_q, pairs, self.headdim, self.headdim)

    @property
    def input_bytes(self) -> int:
        """Memory of query, key, value and output together."""
        query = self.batch * self.nheads_q * self.seqlen_q * self.headdim
        key = self.batch * self.nheads_kv * self.seqlen_k * self.headdim
        return 2 * (2 * query + 2 * key)

    @property
    def scores(self) -> int:
        """Elements of the score matrix that an unfused implementation stores."""
        return self.batch * self.nheads_q * self.seqlen_q * self.seqlen_k

    def __str__(self) -> str:
        heads = f"{self.nheads_q}"
        if self.nheads_kv != self.nheads_q:
            heads += f"/{self.nheads_kv}"
        length = f"{self.seqlen_q}"
        if self.seqlen_k != self.seqlen_q:
            length += f"x{self.seqlen_k}"
        causal = " causal" if self.causal else ""
        return f"D={self.headdim} B={self.batch} H={heads} N={length} {self.dtype}{causal}"


def visible_pairs(
    seqlen_q: int,
    seqlen_k: int,
    causal: bool,
    causal_align: Literal["upper_left", "lower_right"] = "upper_left",
) -> int:
    """How many (query, key) pairs attention looks at.

    Upper left: query i sees keys 0..i. Lower right: query i sees keys 0..i + seqlen_k - seqlen_q.
    """
    if not causal:
        return seqlen_q * seqlen_k
    diagonal = 0 if causal_align == "upper_left" else seqlen_k - seqlen_q
    # Rows whose count grows 1, 2, 3, ..: those that see a key but not yet all of them.
    first = max(0, -diagonal)
    full = max(first, min(seqlen_q, seqlen_k - 1 - diagonal))
    growing = full - first
    start = first + diagonal + 1
    return growing * start + growing * (growing - 1) // 2 + (seqlen_q - full) * seqlen_k


def attention_flops(batch: int, nheads_q: int, pairs: int, headdim_qk: int, headdim_v: int) -> int:
    """2 · B · H · pairs · (Dqk + Dv): a multiply and an add for each product term."""
    return 2 * batch * nheads_q * pairs * (headdim_qk + headdim_v)

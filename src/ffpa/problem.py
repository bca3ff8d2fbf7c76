"""One attention problem: its sizes, its mask, and what no kernel takes whatever the device."""

from dataclasses import dataclass

from ffpa.errors import UnsupportedFeatureError, UnsupportedValueError

ACCUMULATORS = ("f16", "f32", "qk32_pv16", "qk16_pv32", "f16f32")
CAUSAL_ALIGNS = ("upper_left", "lower_right")
MAX_HEADDIM = 1024


def mask_diagonal(seqlen_q: int, seqlen_k: int, is_causal: bool, causal_align: str) -> int:
    """Row i sees the keys j <= i + diagonal; full attention is the diagonal that hides none."""
    if not is_causal:
        return seqlen_k - 1
    return 0 if causal_align == "upper_left" else seqlen_k - seqlen_q


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Shape, mask and arithmetic of one attention call."""

    dtype: str  # "fp16", "bf16"
    batch: int
    nheads_q: int
    nheads_kv: int
    seqlen_q: int
    seqlen_k: int
    headdim: int
    headdim_v: int | None = None  # of value and the output; None: headdim
    causal: bool = False
    causal_align: str = "upper_left"
    acc: str = "f32"
    masked: bool = False  # by an attn_mask, beside the causal one

    @property
    def diagonal(self) -> int:
        return mask_diagonal(self.seqlen_q, self.seqlen_k, self.causal, self.causal_align)

    @property
    def empty(self) -> bool:
        """Nothing to launch: no output element, or no key to attend to."""
        return 0 in (self.batch, self.nheads_q, self.seqlen_q, self.seqlen_k)

    def check(self) -> None:
        """Raise UnsupportedError for sizes and accumulators that no kernel takes."""
        if self.headdim % 8 or not 8 <= self.headdim <= MAX_HEADDIM:
            raise UnsupportedValueError(
                f"headdim {self.headdim} is not a multiple of 8 from 8 to {MAX_HEADDIM}: "
                f"pad query, key and value with zeros to one that is",
            )
        headdim_v = self.headdim if self.headdim_v is None else self.headdim_v
        if headdim_v > self.headdim:
            raise UnsupportedFeatureError(
                f"value has headdim {headdim_v}, above the {self.headdim} of query and key: pad "
                f"those with zeros to {headdim_v}, and pass scale=1/sqrt({self.headdim})",
            )
        if headdim_v % 8 or headdim_v < 8:
            raise UnsupportedValueError(
                f"value has headdim {headdim_v}, which is not a multiple of 8 from 8 to the "
                f"{self.headdim} of query and key: pad it with zeros to one that is",
            )
        if self.nheads_q and (not self.nheads_kv or self.nheads_q % self.nheads_kv):
            raise UnsupportedValueError(
                f"{self.nheads_q} query heads do not divide over {self.nheads_kv} key/value "
                f"heads: nheads_q has to be a multiple of nheads_kv",
            )
        if self.seqlen_q + self.seqlen_k >= 2**31:
            raise UnsupportedValueError(
                f"seqlen_q {self.seqlen_q} and seqlen_k {self.seqlen_k} add up to 2^31 or more: "
                f"split the sequence",
            )
        if self.causal_align not in CAUSAL_ALIGNS:
            raise UnsupportedValueError(
                f"causal_align={self.causal_align!r} is not one of {', '.join(CAUSAL_ALIGNS)}",
            )
        if self.acc not in ACCUMULATORS:
            raise UnsupportedValueError(f"acc={self.acc!r} is not one of {', '.join(ACCUMULATORS)}")
        if self.dtype == "bf16" and self.acc != "f32":
            raise UnsupportedValueError(
                f"acc={self.acc} sums in F16, whose range bf16 values exceed: "
                f"use acc=f32, or tensors in fp16",
            )

"""How contestants are called wherever a reader meets them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

CEILING_PREFIX = "ceiling-"
CPU_MODEL = "numerics-cpu"
ORACLE = "naive"  # our kernel that is there to be right: not a contender

_LABELS = {
    "sdpa-efficient": "SDPA EA",
    "sdpa-flash": "SDPA flash",
    "sdpa-cudnn": "SDPA cuDNN",
    "sdpa-math": "SDPA math",
    "flex": "FlexAttention",
    "flash-attn-4": "flash-attn 4",
    "ceiling-matmul": "matmuls storing S",
    "ceiling-square": "square matmul",
    "ceiling-copy": "copy ceiling",
    CPU_MODEL: "CPU model",
}


# What a rate beside the kernels' is the rate of, where the label alone does not say.
_MEANINGS = {
    "ceiling-matmul": (
        "both products of the attention's shapes by torch.matmul, not fused, so that S goes "
        "through memory: a fused kernel may pass it"
    ),
    "ceiling-square": "one product of 8192 × 8192 matrices, the rate that the device sustains",
    "ceiling-copy": "attention that took as long as a copy of as many bytes",
}


class Contestant(NamedTuple):
    """A kernel with its accumulator, or (acc None) a baseline or a ceiling."""

    kernel: str
    acc: str | None = None
    variant: str = ""

    @property
    def label(self) -> str:
        """Text for legends and table heads: "split_d-sm80 F16", "SDPA EA"."""
        words = [_LABELS.get(self.kernel, self.kernel)]
        if self.acc:
            words.append(self.acc.upper().replace("_", " "))
        if self.variant:
            words.append(f"({self.variant})")
        return " ".join(words)

    @property
    def is_ours(self) -> bool:
        """Whether it is compiled from csrc/."""
        return self.acc is not None and self.kernel != CPU_MODEL

    @property
    def is_oracle(self) -> bool:
        return self.kernel == ORACLE

    @property
    def is_ceiling(self) -> bool:
        return self.kernel.startswith(CEILING_PREFIX)

    @property
    def is_peer(self) -> bool:
        """Whether it is somebody else's attention."""
        return self.acc is None and not self.is_ceiling

    @property
    def rank(self) -> tuple[int, str, str, str]:
        """Sorting key: the baseline, our kernels, the other baselines, ceilings."""
        if self == EFFICIENT:
            group = 0
        elif self.is_ours:
            group = 1
        else:
            group = 3 if self.is_ceiling else 2
        return group, self.kernel, self.acc or "", self.variant


EFFICIENT = Contestant("sdpa-efficient")  # SDPA's backend of that name (EA): speed-ups are over it


def meanings(contestants: Iterable[Contestant]) -> list[str]:
    """What the captions say of those among them that are no attention."""
    return [
        f"{one.label}: {_MEANINGS[one.kernel]}" for one in contestants if one.kernel in _MEANINGS
    ]


def compiled_for(kernel: str, capability: str | None) -> str | None:
    """The note a kernel needs on a device of another architecture than the one in its name.

    "split_d-sm80" on capability 9.0 gives "sm_80 kernel compiled for sm_90"; None when they agree
    or one of them is not known.
    """
    _, separator, arch = kernel.rpartition("-sm")
    device = (capability or "").replace(".", "")
    if not separator or not device or arch == device:
        return None
    return f"sm_{arch} kernel compiled for sm_{device}"

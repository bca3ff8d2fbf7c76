"""What attention is compared with: plain products, a copy, and the chip's arithmetic peak."""

from __future__ import annotations

import torch
from torch import Tensor

from .inputs import Inputs
from .shape import Shape
from .timer import Launch

CEILING = "ceiling-matmul"
SQUARE = "ceiling-square"
COPY = "ceiling-copy"
SIDE = 8192  # of the square product: large enough that memory is no limit
SQUARE_BYTES = 3 * 2 * SIDE**2
SQUARE_FLOPS = 2 * SIDE**3
SCORE_BYTES = 4 * 2**30  # scores held at a time; heads beyond that go through in turns

# Dense FP16 multiply-adds count as 2, per clock and SM, from NVIDIA's architecture papers; never
# the figure with sparsity. Chips that are not listed have no check.
FLOP_PER_CLOCK = {
    (8, 0): 2048,
    (8, 6): 1024,
    (8, 9): 1024,
    (9, 0): 4096,
    (10, 0): 8192,
    (12, 0): 1024,
}


class ImpossibleResultError(RuntimeError):
    """A rate above what the device can do: the measurement is wrong, whatever the reason."""


def matmul_launch(inputs: Inputs) -> tuple[Launch, int]:
    """Both products of this attention as batched torch.matmul, without softmax or mask.

    Returns the launch and its floating-point operations. Scores are scaled on the way out, as
    attention does, so that the second product meets numbers of ordinary size. They go through
    memory, which takes most of the time at a small headdim: a fused kernel may be faster.
    """
    shape = inputs.shape
    key = inputs.key.flatten(0, 1)
    value = inputs.value.flatten(0, 1)
    # Query heads that share a key form one taller matrix.
    query = inputs.query.reshape(len(key), -1, shape.headdim)
    heads = max(1, min(len(key), SCORE_BYTES // (2 * query.shape[1] * shape.seqlen_k)))
    scores = query.new_empty(heads, query.shape[1], shape.seqlen_k)
    out = torch.empty_like(query)

    def launch() -> None:
        for first in range(0, len(key), heads):
            part = slice(first, min(first + heads, len(key)))
            held: Tensor = scores[: part.stop - part.start]
            torch.baddbmm(
                held,
                query[part],
                key[part].transpose(1, 2),
                beta=0,
                alpha=shape.headdim**-0.5,
                out=held,
            )
            torch.bmm(held, value[part], out=out[part])

    return launch, 4 * shape.scores * shape.headdim


def product_bytes(kernel: str, shape: Shape) -> int:
    """What CEILING or SQUARE needs beyond inputs and output; 0 for any other contestant."""
    return {CEILING: min(SCORE_BYTES, 2 * shape.scores), SQUARE: SQUARE_BYTES}.get(kernel, 0)


def square_launch(inputs: Inputs) -> Launch:
    """One large product of the inputs' dtype: the rate that the device sustains, whatever D is."""
    like = inputs.query
    left, right = (torch.randn(SIDE, SIDE, dtype=like.dtype, device=like.device) for _ in range(2))
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def copy_launch(inputs: Inputs) -> Launch:
    """Key copied by torch: as many bytes read and written as attention reads of key and value.

    With few queries nothing else takes time, so that attention's share of this copy's speed is its
    share of the bandwidth that a copy reaches.
    """
    copied = torch.empty_like(inputs.key)
    return lambda: copied.copy_(inputs.key)


def dense_peak_tflops(
    capability: tuple[int, int], sm_count: int, max_clock_mhz: float | None
) -> float | None:
    """SMs x FLOP per clock x highest clock; None when a factor is unknown."""
    per_clock = FLOP_PER_CLOCK.get(capability)
    if per_clock is None or max_clock_mhz is None:
        return None
    return sm_count * per_clock * max_clock_mhz * 1e6 / 1e12


def check_possible(name: str, tflops: float, peak: float | None) -> None:
    """Raise ImpossibleResultError for a rate above the peak."""
    if peak is not None and tflops > peak:
        raise ImpossibleResultError(
            f"{name}: {tflops:.0f} TFLOP/s is above the device's dense peak of {peak:.0f}: "
            "the launch did less work than counted, or was not waited for"
        )

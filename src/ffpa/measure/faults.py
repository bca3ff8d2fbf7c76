"""From an exception to the status and reason of a row."""

from __future__ import annotations

import re

import torch

from ffpa.record import Status

COMPILERS = ("torch._inductor", "torch._dynamo", "triton", "cutlass")
REASON_LENGTH = 200


class DeviceLostError(RuntimeError):
    """The CUDA context is broken; nothing more can run in this process."""


def short_reason(error: BaseException) -> str:
    """The first line of an error, without paths: it goes into a published row."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    text = re.sub(r"(?:/[\w.+-]+)+/([\w.+-]+)", r"\1", text)
    return text if len(text) <= REASON_LENGTH else text[: REASON_LENGTH - 1] + "…"


def out_of_memory_reason(error: BaseException) -> str:
    """How much was asked for; the rest of torch's message describes the moment, not the case."""
    asked = re.search(r"Tried to allocate ([\d.]+ \w+)", str(error))
    return f"out of memory allocating {asked[1]}" if asked else "out of memory"


def classify(error: Exception, *, ours: bool) -> tuple[Status, str]:
    """Status and reason of a contestant that raised `error`."""
    if isinstance(error, torch.OutOfMemoryError):
        return "oom", out_of_memory_reason(error)
    if type(error).__module__.startswith(COMPILERS):
        return "compile_error", short_reason(error)
    if ours:
        # Its own predicate had said that it runs: this is a fault, not a refusal.
        return "wrong_result", f"the launch failed: {short_reason(error)}"
    return "unsupported", short_reason(error)

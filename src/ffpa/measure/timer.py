"""Time one launch on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from .telemetry import State, Telemetry

Launch = Callable[[], object]

# Spun on the device before the first event (about 0.2 ms), so that the host has queued launch and
# events by the time they run and its own speed stays out of the sample. Where the host was late all
# the same, the sample is taken again with twice the spin, up to the most (about 3 ms): what is late
# then is a launch that itself waits for the device.
QUEUE_CYCLES = 400_000
MOST_QUEUE_CYCLES = 16 * QUEUE_CYCLES


@dataclass(frozen=True)
class Sample:
    """How long one launch took, and the state of the chip meanwhile."""

    ms: float
    state: State


class Timer(Protocol):
    """What rounds need of a clock on the device."""

    def sample(self, launch: Launch) -> Sample:
        """Run a launch once and time it."""


class CudaTimer:
    """CUDA events around a launch, the L2 cache cleared before."""

    def __init__(self, device: torch.device, telemetry: Telemetry, *, cold: bool) -> None:
        self._telemetry = telemetry
        properties = torch.cuda.get_device_properties(device)
        # Twice the cache, so that nothing of the inputs survives however lines are replaced.
        self.flush_bytes = 2 * properties.L2_cache_size if cold else 0
        self._flush = torch.empty(self.flush_bytes, dtype=torch.int8, device=device)
        self._begin, self._end = _event(), _event()
        self._queue_cycles = QUEUE_CYCLES

    def sample(self, launch: Launch) -> Sample:
        """Time a launch, again where the host was late; raises what the launch raises."""
        while True:
            self._flush.zero_()
            torch.cuda._sleep(self._queue_cycles)
            self._begin.record()
            launch()
            self._end.record()
            late = self._begin.query()
            state = self._telemetry.read()  # the launch is still running, unless it is a short one
            self._end.synchronize()
            if not late or self._queue_cycles >= MOST_QUEUE_CYCLES:
                return Sample(self._begin.elapsed_time(self._end), state)
            self._queue_cycles *= 2


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)

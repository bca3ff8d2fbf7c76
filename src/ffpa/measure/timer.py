"""Time one launch on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from .telemetry import State, Telemetry

Launch = Callable[[], object]

# Spun on the device before the first event (about 0.2 ms), so that the host has queued launch and
# events by the time they run and its own speed stays out of the sample. Where the host was late all
# the same the launch is repeated, and late a second time, with twice the spin. It stays at what was
# enough, for all contestants alike. What a spin of about 3 ms does not cover is a launch that waits
# for the device itself: its samples are taken as they are, and marked.
QUEUE_CYCLES = 400_000
MOST_QUEUE_CYCLES = 16 * QUEUE_CYCLES
TRIES = 2  # launches with one spin


@dataclass(frozen=True)
class Sample:
    """How long one launch took, and the state of the chip meanwhile."""

    ms: float
    state: State
    repeated: int = 0  # launches before this one that were dropped, as the host was late
    late: bool = False  # whether it was late here too, so that its time is in `ms`


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
        self._flush = torch.zeros(self.flush_bytes, dtype=torch.int8, device=device)
        self._begin, self._end = _event(), _event()
        self._queue_cycles = QUEUE_CYCLES
        self._waiting: set[Launch] = set()  # that no spin covers

    def sample(self, launch: Launch) -> Sample:
        """Time a launch, again where the host was late; raises what the launch raises."""
        cycles, dropped = self._queue_cycles, 0
        while True:
            sample = self._once(launch, cycles)
            if not sample.late:
                self._queue_cycles = cycles
                return replace(sample, repeated=dropped)
            if launch in self._waiting:
                return sample
            dropped += 1
            if dropped % TRIES == 0:
                cycles *= 2
            if cycles > MOST_QUEUE_CYCLES:
                self._waiting.add(launch)
                return replace(sample, repeated=dropped - 1)

    def _once(self, launch: Launch, cycles: int) -> Sample:
        # Read, not written: what the clearing itself left dirty would be written back during the
        # launch and at its expense, 1 to 5 % of one at N = 1024.
        self._flush.view(torch.int64).sum()
        torch.cuda._sleep(cycles)
        self._begin.record()
        launch()
        self._end.record()
        late = self._begin.query()  # the spin was over before all that follows it was queued
        state = self._telemetry.read()  # the launch is still running, unless it is a short one
        self._end.synchronize()
        return Sample(self._begin.elapsed_time(self._end), state, late=late)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)

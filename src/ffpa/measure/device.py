"""What measuring needs of a device, and the CUDA device that provides it."""

from __future__ import annotations

from typing import Protocol

import torch

from ffpa.support import DeviceLimits, build_limits

from .ceiling import dense_peak_tflops
from .faults import DeviceLostError
from .telemetry import Telemetry
from .timer import CudaTimer, Timer


class Device(Protocol):
    """Where a point is measured."""

    where: torch.device
    limits: DeviceLimits
    peak_tflops: float | None  # dense; None: unknown, results are not checked against it

    def free_memory(self) -> int:
        """Bytes that an allocation can still get."""

    def release(self) -> None:
        """Give back memory that nobody uses."""

    def finish(self) -> None:
        """Wait for all launches; raises what they failed with."""

    def timer(self, *, cold: bool) -> Timer:
        """A timer, which clears the caches before each sample if `cold`."""


class CudaDevice:
    """CUDA device `index`."""

    def __init__(self, index: int, telemetry: Telemetry) -> None:
        self.where = torch.device("cuda", index)
        self.limits = build_limits(index)
        self._telemetry = telemetry
        sm_count = torch.cuda.get_device_properties(index).multi_processor_count
        clock = telemetry.max_sm_clock_mhz()
        self.peak_tflops = dense_peak_tflops(self.limits.capability, sm_count, clock)

    def free_memory(self) -> int:
        """Free on the device, or cached by torch."""
        free, _ = torch.cuda.mem_get_info(self.where)
        cached = torch.cuda.memory_reserved(self.where) - torch.cuda.memory_allocated(self.where)
        return free + cached

    def release(self) -> None:
        """Empty torch's cache."""
        torch.cuda.empty_cache()

    def finish(self) -> None:
        """Wait for all launches; DeviceLostError when the CUDA context does not survive them."""
        try:
            torch.cuda.synchronize(self.where)
        except RuntimeError as error:
            what = str(error).splitlines()[0]
            raise DeviceLostError(f"the CUDA context is lost: {what}") from error

    def timer(self, *, cold: bool) -> CudaTimer:
        """CUDA events."""
        return CudaTimer(self.where, self._telemetry, cold=cold)

"""Clock, power and throttle state of the GPU, read while a launch runs."""

from __future__ import annotations

from dataclasses import dataclass

from ffpa.record.nvml import Nvml

# Bits of NVML's clock event reasons. Heat and hardware brakes come and go with what else the
# machine does, so rounds under them are thrown away. The power cap (0x4) is not among them: a chip
# of this class reaches it in every long matrix product, and it is part of what is measured.
SLOWDOWNS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
POWER_CAP = 0x4


@dataclass(frozen=True)
class State:
    """One reading; None where the driver does not tell."""

    sm_clock_mhz: float | None = None
    power_w: float | None = None
    reasons: int | None = None

    @property
    def slowdown(self) -> str | None:
        """Why the clocks are not the chip's own choice; None when they are."""
        found = [text for bit, text in SLOWDOWNS.items() if (self.reasons or 0) & bit]
        return ", ".join(found) or None

    @property
    def power_capped(self) -> bool | None:
        """Whether the power limit holds the clocks down."""
        return None if self.reasons is None else bool(self.reasons & POWER_CAP)


class Telemetry:
    """Reads a device's state; without NVML every reading is empty."""

    def __init__(self, nvml: Nvml | None) -> None:
        self._nvml = nvml

    def read(self) -> State:
        """The state now, in a fraction of a millisecond."""
        nvml = self._nvml
        if nvml is None:
            return State()
        power = nvml.ask("GetPowerUsage")
        reasons = nvml.ask("GetCurrentClocksEventReasons")
        if reasons is None:  # drivers before 535 know only the older name
            reasons = nvml.ask("GetCurrentClocksThrottleReasons")
        return State(
            sm_clock_mhz=nvml.ask("GetClockInfo", nvml.constant("CLOCK_SM")),
            power_w=None if power is None else power / 1000,
            reasons=reasons,
        )

    def max_sm_clock_mhz(self) -> float | None:
        """The highest SM clock of the chip."""
        nvml = self._nvml
        return None if nvml is None else nvml.ask("GetMaxClockInfo", nvml.constant("CLOCK_SM"))

    def other_processes(self) -> int | None:
        """How many other processes compute on the device."""
        running = None if self._nvml is None else self._nvml.ask("GetComputeRunningProcesses")
        return None if running is None else max(0, len(running) - 1)

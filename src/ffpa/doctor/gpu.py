"""Is the device free, cool and at its own clocks?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ffpa.measure.telemetry import POWER_CAP, SLOWDOWNS
from ffpa.record.nvml import Nvml

from .line import Line

GIB = 2**30
# What experiment=headdim takes at D = 1024, with the scores of SDPA's math backend; its plan says.
HEADLINE_BYTES = 28 * GIB
NO_NVML = "NVML does not answer for this device"


def check_memory(free: int, total: int) -> Line:
    """Enough for the headline experiment?"""
    found = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if free >= HEADLINE_BYTES:
        return Line("GPU memory", "ok", found)
    return Line(
        "GPU memory", "warn", found,
        f"experiment=headdim takes up to {HEADLINE_BYTES / GIB:.0f} GiB: free some, or leave out "
        "SDPA's math backend with baselines=sdpa-efficient (6 GiB)",
    )  # fmt: skip


def check_clocks(nvml: Nvml | None) -> Iterator[Line]:
    """Clock, temperature, power, and whether something holds the clocks down."""
    if nvml is None:
        yield Line("clocks", "warn", NO_NVML, "install nvidia-ml-py; in a container, set "
                   "NVIDIA_DRIVER_CAPABILITIES=compute,utility")  # fmt: skip
        return
    now = nvml.ask("GetClockInfo", nvml.constant("CLOCK_SM"))
    most = nvml.ask("GetMaxClockInfo", nvml.constant("CLOCK_SM"))
    celsius = nvml.ask("GetTemperature", nvml.constant("TEMPERATURE_GPU"))
    power, limit = nvml.ask("GetPowerUsage"), nvml.ask("GetEnforcedPowerLimit")
    yield Line(
        "clocks", "ok",
        f"SM {_told(now)} of {_told(most)} MHz, {_told(celsius)} °C, "
        f"{_told(power, 1000)} of {_told(limit, 1000)} W",
    )  # fmt: skip
    yield _throttling(nvml)


def _throttling(nvml: Nvml) -> Line:
    reasons = nvml.ask("GetCurrentClocksEventReasons")
    if reasons is None:  # drivers before 535 know only the older name
        reasons = nvml.ask("GetCurrentClocksThrottleReasons")
    if reasons is None:
        return Line("throttling", "warn", "the driver does not tell", "update the driver")
    braked = [text for bit, text in SLOWDOWNS.items() if reasons & bit]
    if braked:
        return Line(
            "throttling", "fail", ", ".join(braked),
            "let it cool, see to its fans and power supply: rounds under a brake are thrown away",
        )  # fmt: skip
    capped = ", at its power limit" if reasons & POWER_CAP else ""
    return Line("throttling", "ok", f"none{capped}")


def check_processes(nvml: Nvml | None) -> Line:
    """Does anybody else compute here? This process counts once it has a context."""
    running = None if nvml is None else nvml.ask("GetComputeRunningProcesses")
    if running is None:
        return Line("other processes", "warn", NO_NVML, "look with nvidia-smi on the host")
    others = [entry for entry in running if _id(entry) != os.getpid()]
    if not others:
        return Line("other processes", "ok", "none")
    ids = ", ".join(str(_id(entry)) for entry in others)
    return Line(
        "other processes", "fail", f"{len(others)} compute on this GPU (process {ids})",
        "wait for them, or choose another GPU with CUDA_VISIBLE_DEVICES: times would be theirs too",
    )  # fmt: skip


def _id(entry: Any) -> int:
    process: int = entry.pid
    return process


def _told(value: float | None, divisor: int = 1) -> str:
    return "?" if value is None else f"{value / divisor:.0f}"

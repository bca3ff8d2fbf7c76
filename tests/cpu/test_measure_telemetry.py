"""NVML that answers, answers partly, or is not there."""

import sys
from types import SimpleNamespace

import pytest
import torch

from ffpa.measure.telemetry import State, Telemetry
from ffpa.record.nvml import Nvml


class NVMLError(Exception):
    pass


class FakeLibrary:
    """A driver that knows some calls, refuses one, and lacks the rest."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1

    def __init__(self, *, old=False):
        name = "Throttle" if old else "Event"
        setattr(self, f"nvmlDeviceGetCurrentClocks{name}Reasons", lambda handle: 0x24)

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "GPU-1234-5678":
            raise NVMLError("not found")
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetPowerUsage(self, handle):
        raise NVMLError("not supported")

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return ["this one", "another"]


def test_reads_what_the_driver_knows():
    telemetry = Telemetry(Nvml(FakeLibrary(), handle=None))
    assert telemetry.read() == State(sm_clock_mhz=1980, power_w=None, reasons=0x24)
    assert telemetry.max_sm_clock_mhz() == 1980
    assert telemetry.other_processes() == 1


def test_falls_back_to_the_older_name_of_the_reasons():
    assert Telemetry(Nvml(FakeLibrary(old=True), handle=None)).read().reasons == 0x24


def test_without_nvml_every_reading_is_empty():
    telemetry = Telemetry(None)
    assert telemetry.read() == State(None, None, None)
    assert telemetry.max_sm_clock_mhz() is None
    assert telemetry.other_processes() is None


def test_heat_is_a_slowdown_and_the_power_cap_is_not():
    assert State(reasons=0x20).slowdown == "software thermal slowdown"
    assert State(reasons=0x40 | 0x8).slowdown == "hardware slowdown, hardware thermal slowdown"
    assert State(reasons=0x4).slowdown is None
    assert State(reasons=0x1).slowdown is None  # idle
    assert State(reasons=None).slowdown is None


def test_power_cap_is_unknown_without_reasons():
    assert State(reasons=0x4).power_capped is True
    assert State(reasons=0x20).power_capped is False
    assert State().power_capped is None


@pytest.mark.parametrize(("uuid", "reason"), [("1234-5678", None), ("9999", "NVML: not found")])
def test_the_device_is_found_by_its_own_id(monkeypatch, uuid, reason):
    monkeypatch.setitem(sys.modules, "pynvml", FakeLibrary())
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=uuid)
    )
    nvml, why = Nvml.open(0)
    assert why == reason
    assert (nvml is None) == (reason is not None)


def test_the_library_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvml.open(0) == (None, "nvidia-ml-py is not installed")

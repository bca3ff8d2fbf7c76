"""python -m ffpa doctor: every line that is not ok says what to do; NVML is played by a fake."""

import os
import sys
from types import SimpleNamespace

import pytest
import torch

import ffpa.doctor
from ffpa.__main__ import main
from ffpa.doctor.gpu import check_clocks, check_memory, check_processes
from ffpa.doctor.line import Line, show
from ffpa.doctor.software import check_build, check_disk, check_driver, check_packages, check_torch
from ffpa.doctor.usable import check_arch, check_kernels
from ffpa.extension import Instance
from ffpa.record.nvml import Nvml
from ffpa.support import DeviceLimits

H200 = DeviceLimits((9, 0), 232448)
GIB = 2**30


class NVMLError(Exception):
    pass


class Driver:
    """A driver with one GPU; a test may change what it answers, or take an answer away."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def __init__(self, *, reasons=0, processes=(), **system):
        self.reasons, self.processes, self.system = reasons, processes, system

    def nvmlInit(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        if "broken" in self.system:
            raise NVMLError("Driver/library version mismatch")
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion(self):
        return 13000

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 345

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetTemperature(self, handle, kind):
        return 31

    def nvmlDeviceGetPowerUsage(self, handle):
        return 75_500

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in self.processes]


def opened(**answers):
    return Nvml(Driver(**answers), "handle")


def instance(kernel="split_d-sm90", headdim=512, archs=("90a",), acc="f32", smem=200_000):
    return Instance(
        name=f"{kernel}/d{headdim}/fp16/{acc}", id=kernel, dtype="fp16", acc=acc, headdim=headdim,
        variant="", fallback=False, narrow=False, masks=True, max_seqlen_k=0, Br=64, Bc=64,
        num_threads=128, smem_bytes=smem, archs=list(archs), lesson="", reason="",
    )  # fmt: skip


def test_a_line_that_is_not_ok_needs_a_fix_and_an_ok_one_none():
    with pytest.raises(ValueError, match="a fix belongs"):
        Line("x", "fail", "broken")
    with pytest.raises(ValueError, match="a fix belongs"):
        Line("x", "ok", "fine", "do something")
    assert show(Line("x", "fail", "broken", "mend it")).splitlines()[1].strip() == "→ mend it"


def test_the_driver():
    line = check_driver(Driver(), None)
    assert (line.state, line.found) == ("ok", "580.159.04, up to CUDA 13.0")
    assert "mismatch" in check_driver(Driver(broken=True), None).found
    line = check_driver(None, "NVML: not found")
    assert line.state == "fail" and "--gpus all" in line.fix


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_torch_without_a_device(monkeypatch):
    assert check_torch().fix == "add --gpus all"
    monkeypatch.setitem(sys.modules, "pynvml", Driver())
    monkeypatch.setattr("torch.version.cuda", None)
    line = check_torch()
    assert "built without CUDA" in line.found and line.fix.startswith("install one with it")


def test_packages(monkeypatch):
    assert check_packages().state == "ok"
    monkeypatch.setattr("ffpa.doctor.software.NEEDED", ("pydantic", "no-such-package"))
    line = check_packages()
    assert line.state == "fail" and line.found.endswith("not installed: no-such-package")


def test_the_extension(tmp_path):
    def missing():
        raise ImportError("the extension ffpa._C is not built: run `pip install -e .`")

    build, line = check_build(missing)
    assert build is None and line.state == "fail" and line.fix == "run `pip install -e .`"
    kernels = {"kernels": {"a": {}, "b": {}}, "kernel_filter": []}
    info = {"nvcc_version": "13.0", "source_hash": "0" * 64, **kernels}
    build, line = check_build(lambda: info)
    assert build == info and line.state == "warn" and "stale" in line.fix
    _, line = check_build(lambda: info, tree=tmp_path)  # a wheel: no sources beside it
    assert (line.state, line.found) == ("ok", "nvcc 13.0, 2 kernels")
    _, line = check_build(lambda: info | {"kernel_filter": ["naive", "*/d64/*"]}, tree=tmp_path)
    assert line.state == "warn" and line.fix.startswith("unset FFPA_KERNELS and rebuild it")
    assert line.found == "nvcc 13.0, 2 kernels, a part: FFPA_KERNELS=naive;*/d64/*"
    _, line = check_build(lambda: info | {"debug_barriers": True}, tree=tmp_path)
    assert line.state == "warn" and line.fix.startswith("unset FFPA_DEBUG_BARRIERS and rebuild")
    assert line.found == "nvcc 13.0, 2 kernels, for debugging: FFPA_DEBUG_BARRIERS=1"


def test_disk(tmp_path, monkeypatch):
    assert check_disk(tmp_path / "not" / "yet").state == "ok"
    usage = SimpleNamespace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    line = check_disk(tmp_path)
    assert line.state == "fail" and "FFPA_RESULTS" in line.fix


@pytest.mark.parametrize(
    ("archs", "state"), [(["80", "90a"], "ok"), (["90"], "ok"), (["80"], "fail"), (["100"], "fail")]
)
def test_the_architecture(archs, state):  # B01
    line = check_arch(H200, archs)
    assert line.state == state
    if state == "fail":
        assert "FFPA_CUDA_ARCHS=90 pip install" in line.fix


def test_kernels_that_run_and_those_that_do_not():
    instances = [
        instance(headdim=256), instance(headdim=512), instance(headdim=512, acc="f16"),
        instance("split_d-sm80", archs=("80",)), instance("huge", smem=300_000),
    ]  # fmt: skip
    lines = {line.name: line for line in check_kernels(H200, instances)}
    assert lines["split_d-sm90"].found == "fp16 f16 to D = 512, fp16 f32 to D = 512"
    assert lines["split_d-sm80"].state == "warn"
    assert "was compiled for sm_80 and the device is sm_90" in lines["split_d-sm80"].fix
    assert "300000 bytes of shared memory" in lines["huge"].fix


def test_memory():
    assert check_memory(130 * GIB, 139 * GIB).found == "130.0 of 139.0 GiB free"
    line = check_memory(10 * GIB, 80 * GIB)
    assert line.state == "warn" and "baselines=sdpa-efficient" in line.fix


def test_clocks_and_throttling():
    clocks, throttling = check_clocks(opened())
    assert clocks.found == "SM 345 of 1980 MHz, 31 °C, 76 of 700 W"
    assert (throttling.state, throttling.found) == ("ok", "none")
    _, capped = check_clocks(opened(reasons=0x4))
    assert (capped.state, capped.found) == ("ok", "none, at its power limit")
    _, hot = check_clocks(opened(reasons=0x40))
    assert hot.state == "fail" and "hardware thermal slowdown" in hot.found
    (unknown,) = check_clocks(None)
    assert unknown.state == "warn" and "utility" in unknown.fix


def test_an_old_driver_tells_under_the_older_name_or_not_at_all(monkeypatch):
    monkeypatch.delattr(Driver, "nvmlDeviceGetCurrentClocksEventReasons")
    _, silent = check_clocks(opened())
    assert silent.state == "warn" and silent.fix == "update the driver"
    monkeypatch.setattr(
        Driver, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda self, handle: 0x8, raising=False
    )
    _, braked = check_clocks(opened())
    assert braked.state == "fail"


def test_other_processes():
    assert check_processes(opened(processes=[os.getpid()])).found == "none"
    line = check_processes(opened(processes=[os.getpid(), 4711]))
    assert line.state == "fail" and "process 4711" in line.found
    assert "CUDA_VISIBLE_DEVICES" in line.fix
    assert check_processes(None).state == "warn"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_command_on_a_machine_without_a_gpu(capsys):
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "no CUDA device visible" in output
    failing = [line for line in output.splitlines() if line.startswith(("fail", "warn"))]
    assert failing and output.count("→ ") == len(failing)


def test_the_command_on_a_machine_that_is_ready(monkeypatch, capsys, tmp_path):
    build = {
        "nvcc_version": "13.0", "kernels": {}, "kernel_filter": [], "source_hash": "x",
        "archs": ["90a"],
    }  # fmt: skip
    properties = SimpleNamespace(
        name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, uuid="1234",
        shared_memory_per_block_optin=H200.smem_bytes,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", Driver())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (130 * GIB, 139 * GIB))
    monkeypatch.setattr(ffpa.doctor, "device_limits", lambda index: H200)
    monkeypatch.setattr(ffpa.doctor, "build_info", lambda: build)
    monkeypatch.setattr(ffpa.doctor, "kernels", lambda: [instance()])
    monkeypatch.setattr("ffpa.doctor.software.tree_source_hash", lambda tree: "x")
    monkeypatch.setenv("FFPA_RESULTS", str(tmp_path))
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert "NVIDIA H200, sm_90, 132 SMs" in output and "→" not in output


def test_without_the_packages_of_reporting_it_still_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ffpa.doctor", None)
    assert main(["doctor"]) == 1
    assert "pip install -e '.[report]'" in capsys.readouterr().err

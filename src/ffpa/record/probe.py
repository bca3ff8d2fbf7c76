"""Read the facts of environment.json from the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .environment import Build, Environment, Gpu, Software
from .nvml import Nvml
from .store import REPOSITORY

# What may change a result or the ability to reproduce it.
PACKAGES = ("numpy", "hydra-core", "omegaconf", "pydantic", "nvidia-ml-py", "ffpa-attn",
            "flash-attn-4")  # fmt: skip


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _first(value: Any) -> bool | None:
    return None if value is None else bool(value[0])


def probe_gpu(index: int, nvml: Nvml | None) -> Gpu:
    """Describe a CUDA device; facts that only NVML has are null without it."""
    properties = torch.cuda.get_device_properties(index)
    facts: dict[str, Any] = {
        "name": properties.name,
        "sm_count": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "smem_per_block_bytes": getattr(properties, "shared_memory_per_block_optin", None),
    }
    if nvml is not None:
        uuid = _text(nvml.ask("GetUUID"))
        width, generation = nvml.ask("GetMaxPcieLinkWidth"), nvml.ask("GetMaxPcieLinkGeneration")
        limit = nvml.ask("GetEnforcedPowerLimit")
        persistence = nvml.ask("GetPersistenceMode")
        facts |= {
            "uuid_suffix": uuid[-4:] if uuid else None,
            "ecc": _first(nvml.ask("GetEccMode")),
            "mig": _first(nvml.ask("GetMigMode")),
            "persistence": None if persistence is None else bool(persistence),
            "pcie": f"gen{generation} x{width}" if width and generation else None,
            "sm_clock_max_mhz": nvml.ask("GetMaxClockInfo", nvml.constant("CLOCK_SM")),
            "mem_clock_max_mhz": nvml.ask("GetMaxClockInfo", nvml.constant("CLOCK_MEM")),
            "power_limit_w": None if limit is None else limit / 1000,
        }
    return Gpu(**facts)


def _cpu_model() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or None


def _system() -> str:
    """Kernel name and number, without the suffix by which its builder names it."""
    number = re.match(r"[\d.]*\d", platform.release())
    return f"{platform.system()} {number[0] if number else ''}".strip()


def _lock_hash() -> str | None:
    lock = REPOSITORY / "docker" / f"lock-{platform.machine()}.txt"
    return hashlib.sha256(lock.read_bytes()).hexdigest() if lock.exists() else None


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _driver_cuda(nvml: Nvml | None) -> str | None:
    version = nvml.ask_system("GetCudaDriverVersion") if nvml else None
    return f"{version // 1000}.{version % 1000 // 10}" if version else None


def probe_software(nvml: Nvml | None) -> Software:
    """Describe what lies between code and device."""
    cudnn = torch.backends.cudnn.version()
    return Software(
        driver=_text(nvml.ask_system("GetDriverVersion")) if nvml else None,
        cuda_driver=_driver_cuda(nvml),
        cuda_runtime=torch.version.cuda,
        cudnn=str(cudnn) if cudnn else None,
        torch=torch.__version__,
        torch_git=getattr(torch.version, "git_version", None),
        triton=_installed("triton"),
        python=platform.python_version(),
        packages={name: version for name in PACKAGES if (version := _installed(name))},
        os=_system(),
        libc=" ".join(platform.libc_ver()).strip() or "unknown",
        cpu=_cpu_model(),
        arch=platform.machine(),
        container=os.environ.get("FFPA_IMAGE"),
        lock_hash=_lock_hash(),
    )


def describe_build(build: Mapping[str, Any]) -> Build:
    """The part of build_info() that is recorded, with the hash of the extension file."""
    module = sys.modules.get("ffpa._C")
    file = getattr(module, "__file__", None)
    return Build(
        archs=list(build["archs"]),
        flags=list(build["flags"]),
        nvcc=build["nvcc_version"],
        host_compiler=build["host_compiler"],
        extension_hash=hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None,
        kernels=dict(build["kernels"]),
        sources=dict(build["kernel_hashes"]),
    )


def probe(index: int | None, build: Mapping[str, Any] | None) -> Environment:
    """The whole environment. `index` is the CUDA device, None for a run on the CPU."""
    reasons = {
        "container": "not in an image that sets FFPA_IMAGE",
        "lock_hash": "no lock file for this architecture",
        "triton": "not installed",
        "cudnn": "torch was built without cuDNN",
        "cuda_runtime": "torch was built without CUDA",
    }
    nvml, no_nvml = (None, "no CUDA device in this run") if index is None else Nvml.open(index)
    gpu = None if index is None else probe_gpu(index, nvml)
    software = probe_software(nvml)
    missing = {
        f"software.{name}": reasons.get(name, no_nvml or "not reported by this machine")
        for name, value in software
        if value is None
    }
    if gpu is None:
        missing["gpu"] = "no CUDA device in this run"
    else:
        missing |= {
            f"gpu.{name}": no_nvml or "not reported by driver or torch"
            for name, value in gpu
            if value is None
        }
    builds = {build["source_hash"]: describe_build(build)} if build else {}
    return Environment(gpu=gpu, software=software, missing=missing, builds=builds)

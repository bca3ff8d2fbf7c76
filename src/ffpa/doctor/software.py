"""Are the pieces between code and device there, and do they fit each other?"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ffpa.measure.preflight import no_device
from ffpa.record.provenance import tree_source_hash
from ffpa.record.store import REPOSITORY
from ffpa_build.build_info import described, is_debug

from .line import Line

# Imported by measuring and reporting, under the names that pip knows.
NEEDED = ("hydra-core", "jinja2", "matplotlib", "nvidia-ml-py", "omegaconf", "pandas", "pydantic",
          "pyyaml", "rich", "scipy", "tabulate")  # fmt: skip
DISK_BYTES = 2**30  # rows and figures are a few MB; a build and its objects are the rest


def check_packages() -> Line:
    """Python, and what measuring and reporting import."""
    found = f"Python {platform.python_version()}, torch {torch.__version__}"
    missing = [name for name in NEEDED if not _version(name)]
    if missing:
        return Line(
            "packages", "fail", f"{found}; not installed: {', '.join(missing)}",
            "pip install -e '.[report]'",
        )  # fmt: skip
    triton = _version("triton")
    return Line("packages", "ok", f"{found}, {f'triton {triton}' if triton else 'no triton'}")


def check_driver(library: Any, why_none: str | None) -> Line:
    """The driver, as NVML knows it."""
    if library is None:
        return Line(
            "driver", "fail", why_none or "NVML does not answer",
            "install the NVIDIA driver; in a container, start it with --gpus all",
        )  # fmt: skip
    try:
        driver, cuda = (
            library.nvmlSystemGetDriverVersion(),
            library.nvmlSystemGetCudaDriverVersion(),
        )
    except library.NVMLError as error:
        return Line("driver", "fail", f"NVML: {error}", "reboot, or reinstall the NVIDIA driver")
    text = driver.decode() if isinstance(driver, bytes) else driver
    return Line("driver", "ok", f"{text}, up to CUDA {cuda // 1000}.{cuda % 1000 // 10}")


def check_torch() -> Line:
    """Does torch see a device?"""
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        return Line("torch and CUDA", "ok", f"CUDA {torch.version.cuda}, {count} visible")
    found, _, fix = no_device().partition(": ")
    why, _, last = fix.rpartition(": ")
    return Line("torch and CUDA", "fail", f"{found}: {why}" if why else found, last)


def check_build(
    build_info: Callable[[], dict[str, Any]], tree: Path = REPOSITORY
) -> tuple[dict[str, Any] | None, Line]:
    """The extension, and whether it is that of the sources beside it."""
    try:
        build = build_info()
    except ImportError as error:
        found, _, fix = str(error).partition(": ")
        fix = fix or "rebuild it with pip install -e ."
        return None, Line("extension", "fail", found, fix)
    found = f"nvcc {build['nvcc_version']}, {described(build)}"
    if is_debug(build):
        return build, Line(
            "extension", "warn", found,
            "unset FFPA_DEBUG_BARRIERS and rebuild it with pip install -e . to measure",
        )  # fmt: skip
    if (tree / "csrc" / "kernels.toml").exists() and build["source_hash"] != tree_source_hash(tree):
        return build, Line(
            "extension", "warn", f"{found}, built from other sources than those in csrc",
            "rebuild it with pip install -e . so that rows are not stale",
        )  # fmt: skip
    if build["kernel_filter"]:
        return build, Line(
            "extension", "warn", found, "unset FFPA_KERNELS and rebuild it with pip install -e ."
        )
    return build, Line("extension", "ok", found)


def check_disk(results: Path) -> Line:
    """Room for rows, where they go."""
    folder = next(one for one in (results, *results.parents) if one.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / 2**30:.1f} GiB free for results"
    if free >= DISK_BYTES:
        return Line("disk", "ok", found)
    return Line("disk", "fail", found, "make room, or send rows elsewhere with FFPA_RESULTS=FOLDER")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

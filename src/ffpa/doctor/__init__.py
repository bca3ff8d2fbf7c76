"""What a machine needs to build, run and measure, checked line by line."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ffpa import build_info, kernels
from ffpa.inputs import device_limits
from ffpa.record import results_dir
from ffpa.record.nvml import Nvml, load

from .gpu import check_clocks, check_memory, check_processes
from .line import Line, show
from .software import check_build, check_disk, check_driver, check_packages, check_torch
from .usable import check_arch, check_kernels

__all__ = ["Line", "examine", "run"]


def run() -> int:
    """Print every line; returns 1 when one of them fails."""
    lines = list(examine())
    for line in lines:
        print(show(line))
    return int(any(line.state == "fail" for line in lines))


def examine() -> Iterator[Line]:
    """The checks, each as far as those before it allow."""
    yield check_packages()
    library, why_none = load()
    yield check_driver(library, why_none)
    yield check_torch()
    build, line = check_build(build_info)
    yield line
    yield check_disk(results_dir())
    if not torch.cuda.is_available():
        return
    for index in range(torch.cuda.device_count()):
        nvml, _ = Nvml.open(index)
        limits = device_limits(index)
        properties = torch.cuda.get_device_properties(index)
        sms = properties.multi_processor_count
        yield Line(f"GPU {index}", "ok", f"{properties.name}, {limits.arch}, {sms} SMs")
        if build is not None:
            yield check_arch(limits, build["archs"])
            yield from check_kernels(limits, kernels())
        yield check_memory(*torch.cuda.mem_get_info(index))
        yield from check_clocks(nvml)
        yield check_processes(nvml)

"""The two ways to run a point: on a GPU, or by the CPU model of the accumulators."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import torch

import ffpa
from ffpa.record import Row, gpu_slug
from ffpa.record.environment import Environment
from ffpa.record.nvml import Nvml
from ffpa.record.probe import probe
from ffpa.record.provenance import tree_source_hash
from ffpa.record.store import CPU_SLUG, REPOSITORY
from ffpa.settings import Settings, accumulators
from ffpa_build import manifest

from .contestants import Contestant, contestants_of
from .cpu import CPU_KERNEL, model_point, small
from .device import CudaDevice
from .identity import Provenance
from .job import Session, measure_point
from .plan import H200_BYTES
from .telemetry import Telemetry

Progress = Callable[[str], None]


@cache
def kernel_ids() -> list[str]:
    """Kernels of this build; without one, those that a build of this tree would hold."""
    try:
        return [kernel["id"] for kernel in ffpa.kernels()]
    except ImportError:
        return [instance.id for instance in manifest.load(REPOSITORY)]


class Engine(Protocol):
    """What a launch needs of the device."""

    slug: str  # folder of the results
    source_hash: str
    other_processes: int | None
    capacity: int  # bytes of memory

    def environment(self) -> Environment:
        """Machine, software and build."""

    def fit(self, settings: Settings) -> Settings:
        """The point that really runs."""

    def contestants(self, settings: Settings) -> list[Contestant]:
        """Who takes part in a point."""

    def measure(
        self,
        settings: Settings,
        contestants: list[Contestant],
        provenance: Provenance,
        progress: Progress,
    ) -> list[Row]:
        """Rows of all contestants."""


class Planner:
    """Contestants of a GPU run, known without a GPU: what dry_run=true needs."""

    capacity = H200_BYTES

    def fit(self, settings: Settings) -> Settings:
        """As given."""
        return settings

    def contestants(self, settings: Settings) -> list[Contestant]:
        """Kernels of this build, baselines and the ceiling."""
        return contestants_of(settings, kernel_ids())


class GpuEngine(Planner):
    """The current CUDA device."""

    def __init__(self) -> None:
        self._index = torch.cuda.current_device()
        nvml, _ = Nvml.open(self._index)
        telemetry = Telemetry(nvml)
        self._device = CudaDevice(self._index, telemetry)
        self._build = with_shared_memory(ffpa.build_info())
        self.capacity: int = torch.cuda.get_device_properties(self._index).total_memory
        self.slug = gpu_slug(torch.cuda.get_device_name(self._index))
        self.source_hash: str = self._build["source_hash"]
        self.other_processes = telemetry.other_processes()

    def environment(self) -> Environment:
        """Machine, software and build."""
        return probe(self._index, self._build)

    def measure(
        self,
        settings: Settings,
        contestants: list[Contestant],
        provenance: Provenance,
        progress: Progress,
    ) -> list[Row]:
        """Rows of all contestants; raises as measure_point does."""
        return measure_point(settings, contestants, Session(provenance, self._device), progress)


def with_shared_memory(build: dict[str, Any]) -> dict[str, Any]:
    """The build with what a CTA of each kernel takes, which the compiler alone cannot tell."""
    asked = {instance["name"]: instance["smem_bytes"] for instance in ffpa.kernels()}
    kernels = {
        name: {
            arch: {**costs, "smem_bytes": asked[name] + costs["static_smem_bytes"]}
            for arch, costs in archs.items()
        }
        for name, archs in build["kernels"].items()
    }
    return {**build, "kernels": kernels}


class CpuEngine:
    """No GPU: the model at a small N."""

    slug = CPU_SLUG
    other_processes: int | None = None
    capacity = H200_BYTES  # of the points as they were before they became small

    def __init__(self) -> None:
        self.source_hash = tree_source_hash()

    def environment(self) -> Environment:
        """Machine and software; there is no build in play."""
        return probe(None, None)

    def fit(self, settings: Settings) -> Settings:
        """Same head dimension and mask, little else."""
        return small(settings)

    def contestants(self, settings: Settings) -> list[Contestant]:
        """The model once per accumulator."""
        return [Contestant(CPU_KERNEL, acc) for acc in accumulators(settings)]

    def measure(
        self,
        settings: Settings,
        contestants: list[Contestant],
        provenance: Provenance,
        progress: Progress,
    ) -> list[Row]:
        """Errors of each accumulator."""
        progress("CPU model")
        return model_point(settings, provenance)

"""What must be true before Hydra makes a folder for the run: nothing half-written on a refusal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from ffpa.record.nvml import load
from ffpa.settings import Device

NO_DEVICE = "no CUDA device visible: add --gpus all"


def no_device() -> str:
    """Why torch sees no CUDA device: none there, a torch without CUDA, or too old a driver."""
    driver = _driver()
    if driver is None:
        return NO_DEVICE
    version, cuda = driver
    if torch.version.cuda is None:
        return (
            f"no CUDA device visible: torch {torch.__version__} is built without CUDA: install one "
            "with it, on ARM64 from PyTorch's own index (docs/cloud.md)"
        )
    if cuda < int(torch.version.cuda.split(".")[0]):
        return (
            f"no CUDA device visible: driver {version} is for CUDA {cuda}, torch "
            f"{torch.__version__} for CUDA {torch.version.cuda}: update the driver, or install a "
            f"torch built for CUDA {cuda}"
        )
    return NO_DEVICE


def _driver() -> tuple[str, int] | None:
    """Version of the NVIDIA driver and the newest major version of CUDA that it runs."""
    library, _ = load()
    if library is None:
        return None
    try:
        version = library.nvmlSystemGetDriverVersion()
        return version, library.nvmlSystemGetCudaDriverVersion() // 1000
    except library.NVMLError:
        return None


class Preflight(Callback):
    """Hydra reports what a callback raises as a warning only, so this one exits instead."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Before a single point."""
        self._check(config, "hydra.run.dir", Path(config.hydra.run.dir) / ".hydra")

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Before a sweep."""
        self._check(config, "hydra.sweep.dir", Path(config.hydra.sweep.dir) / "multirun.yaml")

    def _check(self, config: DictConfig, key: str, mark: Path) -> None:
        wanted = config.device == Device.cuda and not config.dry_run
        if wanted and not torch.cuda.is_available():
            sys.exit(no_device())
        if mark.exists():
            # Hydra would overwrite the saved settings of the run that is there.
            sys.exit(f"{key} already holds a run: name a new folder, or leave {key} out")

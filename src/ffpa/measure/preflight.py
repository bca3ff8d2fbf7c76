"""What must be true before Hydra makes a folder for the run: nothing half-written on a refusal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from ffpa.settings import Device

NO_DEVICE = "no CUDA device visible: add --gpus all"


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
            sys.exit(NO_DEVICE)
        if mark.exists():
            # Hydra would overwrite the saved settings of the run that is there.
            sys.exit(f"{key} already holds a run: name a new folder, or leave {key} out")

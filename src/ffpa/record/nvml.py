"""NVML for one CUDA device, through nvidia-ml-py; an unanswered question gives None."""

from __future__ import annotations

import importlib
from typing import Any, Self

import torch


def load() -> tuple[Any, str | None]:
    """(the initialised library, None), or (None, why there is none)."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return None, f"NVML: {error}"
    return library, None


class Nvml:
    """The driver's management library, opened for the device that torch calls `index`."""

    def __init__(self, library: Any, handle: Any) -> None:
        self.library = library
        self._handle = handle

    @classmethod
    def open(cls, index: int) -> tuple[Self | None, str | None]:
        """(nvml, None), or (None, why there is none)."""
        library, why_none = load()
        if library is None:
            return None, why_none
        # CUDA and NVML number devices differently, so the device is found by its own id.
        uuid = f"GPU-{torch.cuda.get_device_properties(index).uuid}"
        try:
            return cls(library, library.nvmlDeviceGetHandleByUUID(uuid)), None
        except library.NVMLError as error:
            return None, f"NVML: {error}"

    def ask(self, function: str, *arguments: Any) -> Any:
        """Result of nvmlDevice<function>(handle, ...); None if driver or library lacks it."""
        query = getattr(self.library, f"nvmlDevice{function}", None)
        if query is None:
            return None
        try:
            return query(self._handle, *arguments)
        except self.library.NVMLError:
            return None

    def ask_system(self, function: str) -> Any:
        """Result of nvmlSystem<function>(); None if driver or library lacks it."""
        try:
            return getattr(self.library, f"nvmlSystem{function}")()
        except (AttributeError, self.library.NVMLError):
            return None

    def constant(self, name: str) -> Any:
        """A constant NVML_<name>."""
        return getattr(self.library, f"NVML_{name}")

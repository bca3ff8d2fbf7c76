"""Why there is no CUDA device: the sentence for each of the causes that people meet."""

import sys
from types import SimpleNamespace

import pytest
import torch

from ffpa.measure import preflight


class NVMLError(Exception):
    pass


def nvml(driver: str | None, cuda: int = 0) -> SimpleNamespace:
    """The driver's library; without a driver its start fails."""

    def start() -> None:
        if driver is None:
            raise NVMLError

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=start,
        nvmlSystemGetDriverVersion=lambda: driver,
        nvmlSystemGetCudaDriverVersion=lambda: cuda,
    )


def sentence(monkeypatch, library, version: str, cuda: str | None) -> str:
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    return preflight.no_device()


@pytest.mark.parametrize("library", [None, nvml(None)], ids=["no library", "no driver"])
def test_without_a_driver_the_container_was_started_without_gpus(monkeypatch, library):
    assert sentence(monkeypatch, library, "2.10.0", "12.8") == preflight.NO_DEVICE


def test_a_torch_without_cuda_is_named(monkeypatch):
    said = sentence(monkeypatch, nvml("560.35.03", 12060), "2.10.0+cpu", None)
    assert "torch 2.10.0+cpu is built without CUDA" in said and "PyTorch's own index" in said


def test_a_driver_that_is_too_old_is_named_with_both_fixes(monkeypatch):  # C03
    said = sentence(monkeypatch, nvml("560.35.03", 12060), "2.13.0", "13.0")
    assert said == (
        "no CUDA device visible: driver 560.35.03 is for CUDA 12, torch 2.13.0 for CUDA 13.0: "
        "update the driver, or install a torch built for CUDA 12"
    )


def test_a_driver_of_the_same_cuda_is_not_blamed(monkeypatch):
    assert sentence(monkeypatch, nvml("525.60.13", 12000), "2.10.0", "12.8") == preflight.NO_DEVICE

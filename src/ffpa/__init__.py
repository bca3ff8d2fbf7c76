"""Exact attention for large head dimensions (D = 64 to 1024) on NVIDIA GPUs."""

from ffpa.attention import attention
from ffpa.extension import build_info, kernels
from ffpa.support import supports

__version__ = "0.1.0"

__all__ = ["__version__", "attention", "build_info", "kernels", "supports"]

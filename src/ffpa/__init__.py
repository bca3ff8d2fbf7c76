"""Exact attention for large head dimensions (D = 64 to 1024) on NVIDIA GPUs."""

from ffpa.attention import attention
from ffpa.errors import FallbackWarning
from ffpa.extension import build_info, kernels
from ffpa.sdpa import sdpa, use
from ffpa.support import supports
from ffpa.trace import last_kernel

__version__ = "0.1.0"

__all__ = [
    "FallbackWarning",
    "__version__",
    "attention",
    "build_info",
    "kernels",
    "last_kernel",
    "sdpa",
    "supports",
    "use",
]

"""Stops an image build if torch is for another CUDA than meant: `check_torch.py 12`, or `none`."""

import sys

import torch


def fault(wanted: str, found: str | None) -> str | None:
    """What is wrong with a torch built for CUDA `found` (None: without), or None."""
    if (found or "none").startswith(wanted):
        return None
    return (
        f"torch {torch.__version__} is built for CUDA {found or 'none'}, but the image is to have "
        f"CUDA {wanted}: on ARM64 pass the build argument PYTORCH_INDEX (or TORCH_CUDA=none to do "
        "without)"
    )


if __name__ == "__main__":
    sys.exit(fault(sys.argv[1], torch.version.cuda))

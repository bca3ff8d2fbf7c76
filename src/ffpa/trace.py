"""Which kernel ran, in each thread's last call and in the log, and why torch did."""

import logging
import threading
import warnings

from ffpa.errors import FallbackWarning

LOGGER = logging.getLogger("ffpa")
TORCH = "torch"


class _Last(threading.local):
    kernel: str | None = None


_last = _Last()


def last_kernel() -> str | None:
    """What ran in this thread's last call of `ffpa.attention` or `ffpa.sdpa`.

    The name of an instance of `ffpa.kernels()`, "torch" where `sdpa` went to torch, or None: no
    call yet, or one with nothing to compute. A replayed CUDA graph calls nothing, so it leaves no
    trace; nor does what a compiled graph runs of torch itself.
    """
    return _last.kernel


def ran(kernel: str | None) -> None:
    """Keep the name for `last_kernel`, and log it at level DEBUG."""
    _last.kernel = kernel
    LOGGER.debug("ran %s", kernel or "nothing")


def fell_back(reason: str, stacklevel: int) -> bool:
    """Warn that torch runs a call; `stacklevel` counts from the caller of this."""
    message = f"torch runs this call: {reason}"
    warnings.warn(message, FallbackWarning, stacklevel=stacklevel + 1)
    ran(TORCH)
    return True


# So that torch.compile, which cannot trace it, calls it once, while it traces its caller. This is
# all that torch.compiler.assume_constant_result does, but for importing the compiler, which takes a
# second.
fell_back._dynamo_marked_constant = True  # type: ignore[attr-defined]

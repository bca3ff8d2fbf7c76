"""Which kernel ran: of the last call of each thread, and of every call in the log."""

import logging
import threading

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

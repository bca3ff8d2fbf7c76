"""Which of the compiled kernels a device can run, by the predicate that dispatch uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ffpa.extension import Instance
from ffpa.problem import MAX_HEADDIM, Problem
from ffpa.support import DeviceLimits, find, runs_on

from .line import Line

HEADDIMS = range(64, MAX_HEADDIM + 1, 64)
LENGTH = 8192


def check_arch(limits: DeviceLimits, archs: Sequence[str]) -> Line:
    """Is there machine code for the device in the build?"""
    built = ", ".join(f"sm_{arch}" for arch in archs)
    if any(runs_on(arch, limits.capability) for arch in archs):
        return Line("architecture", "ok", f"{limits.arch}, and the build has {built}")
    major, minor = limits.capability
    return Line(
        "architecture", "fail", f"{limits.arch}, and the build has only {built}",
        f"rebuild with FFPA_CUDA_ARCHS={major}{minor} pip install -e .",
    )  # fmt: skip


def check_kernels(limits: DeviceLimits, instances: Sequence[Instance]) -> Iterator[Line]:
    """A line per kernel: up to which D it runs here, or why it does not."""
    for kernel in dict.fromkeys(instance["id"] for instance in instances):
        own = [instance for instance in instances if instance["id"] == kernel]
        offers = sorted({(instance["dtype"], instance["acc"]) for instance in own})
        reach = {offer: _reach(kernel, offer, limits, own) for offer in offers}
        told = ", ".join(
            f"{dtype} {acc} to D = {most}" for (dtype, acc), (most, _) in reach.items() if most
        )
        if told:
            yield Line(kernel, "ok", told)
        else:
            _, reason = next(iter(reach.values()))
            yield Line(kernel, "warn", "does not run here", reason)


def _reach(
    kernel: str, offer: tuple[str, str], limits: DeviceLimits, own: Sequence[Instance]
) -> tuple[int, str]:
    """The largest D that runs, 0 for none, and the reason why the first does not."""
    dtype, acc = offer
    most, reason = 0, ""
    for headdim in HEADDIMS:
        problem = Problem(
            dtype=dtype, acc=acc, headdim=headdim, batch=1, nheads_q=1, nheads_kv=1,
            seqlen_q=LENGTH, seqlen_k=LENGTH,
        )  # fmt: skip
        support = find(problem, limits, kernel, instances=own)
        if support:
            most = headdim
        reason = reason or support.reason or ""
    return most, reason

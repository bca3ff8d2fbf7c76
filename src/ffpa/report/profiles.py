"""What a profiler's counters say of the kernels, as a table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ffpa.record.profile import KernelProfile

from .ladder import step_of
from .names import Contestant
from .results import NotRecordedError, Results


def profile_table(results: Results) -> pd.DataFrame:
    """One line per profiled launch of the kernels that auto may choose.

    Raises:
        NotRecordedError: there is no profile of the device.
    """
    kernels, _ = kernels_and_steps(results)
    if not kernels:
        raise NotRecordedError(
            "no profile.json: `nox -s profile` on a machine with a GPU records one"
        )
    return pd.DataFrame([_line(one) for one in kernels])


def profile_caption(results: Results) -> str:
    """What the table rests on; after profile_table, which tells when there is none."""
    kernels, _ = kernels_and_steps(results)
    first = kernels[0]
    dims = ", ".join(str(dim) for dim in sorted({one.headdim for one in kernels}))
    apart = "loads / of stores" if first.conflict_shares else "loads and stores together"
    return (
        f"{results.device}; B={first.batch} H={first.nheads_q} N={first.seqlen_q} {first.dtype}, "
        f"D = {dims} only; {_origin(results)}; busy: share of cycles; bank conflicts: share of the "
        f"wavefronts of shared memory, of {apart}; stalls: share of a resident warp's "
        f"time{_stale(results, kernels)}"
    )


def steps_profile(results: Results) -> pd.DataFrame:
    """One line per step of the ladder, as the notes have it; empty where none was profiled."""
    _, steps = kernels_and_steps(results)
    return pd.DataFrame([_step_line(number, name, one) for (number, name), one in steps])


def steps_caption(results: Results) -> str:
    """What that table rests on; after steps_profile, where it has lines."""
    steps = [one for _, one in kernels_and_steps(results)[1]]
    first = steps[0]
    return (
        f"{results.device}, {first.dtype} at [{first.batch}, {first.seqlen_q}, {first.nheads_q}, "
        f"{first.headdim}]; {_origin(results)}{_stale(results, steps)}"
    )


Step = tuple[tuple[int, str], KernelProfile]


def kernels_and_steps(results: Results) -> tuple[list[KernelProfile], list[Step]]:
    """What was profiled: the kernels that auto may choose, and the steps in their order."""
    kernels, steps = [], []
    for one in results.profiles.profiles if results.profiles else ():
        if step := step_of(Contestant(one.kernel, one.acc)):
            steps.append((step, one))
        else:
            kernels.append(one)
    return kernels, sorted(steps, key=lambda item: item[0])


def _origin(results: Results) -> str:
    assert results.profiles is not None
    return f"{results.profiles.tool}, one launch each"


def _stale(results: Results, shown: Sequence[KernelProfile]) -> str:
    record = results.profiles
    assert record is not None
    if record.source_hash == results.source_hash:
        return ""
    changed = {
        one.kernel
        for one in shown
        if not results.unchanged(one.instance, record.env_hash, record.source_hash)
    }
    return f"; STALE, of other kernel sources: {', '.join(sorted(changed))}" if changed else ""


def _longest(one: KernelProfile) -> list[tuple[str, float]]:
    """What a resident warp waits for longest, beside issuing, and the share of its time."""
    waits = {name: share for name, share in one.stalls.items() if name != "selected"}
    return sorted(waits.items(), key=lambda wait: -wait[1])[:3]


def _step_line(number: int, name: str, one: KernelProfile) -> dict[str, str]:
    conflicts = one.conflict_share
    return {
        "step": f"{number} {name.replace('-', ' ')}",
        "tensor": f"{one.tensor_pct:.0f} %",
        "shared": f"{one.shared_pct:.0f} %",
        "conflicts": f"{100 * conflicts:.{0 if conflicts >= 0.1 else 1}f} %",
        "issue": f"{one.issue_pct:.0f} %",
        "L2, TB/s": f"{one.l2_tb_per_s:.1f}",
        "warps an SM": f"{one.warps_per_sm:.1f}",
        "stalls": ", ".join(
            f"{wait.replace('_', ' ')} {100 * share:.0f} %" for wait, share in _longest(one)
        ),
    }


def _conflicts(one: KernelProfile) -> str:
    """Of loads / of stores; of both together where the record does not tell them apart."""
    shares = one.conflict_shares or (one.conflict_share,)
    return " / ".join(f"{100 * share:.2f}" for share in shares) + " %"


def _line(one: KernelProfile) -> dict[str, str]:
    return {
        "kernel": Contestant(one.kernel, one.acc).label,
        "D": str(one.headdim),
        "tensor busy": f"{one.tensor_pct:.0f} %",
        "issue": f"{one.issue_pct:.0f} %",
        "shared memory": f"{one.shared_pct:.0f} %",
        "bank conflicts": _conflicts(one),
        "L2 TB/s": f"{one.l2_tb_per_s:.1f}",
        "DRAM TB/s": f"{one.dram_tb_per_s:.2f}",
        "registers": str(one.registers),
        "shared KiB": f"{one.smem_bytes / 1024:.0f}",
        "longest stalls": ", ".join(f"{name} {share:.0%}" for name, share in _longest(one)),
    }

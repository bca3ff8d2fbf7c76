"""What a profiler's counters say of the kernels, as a table."""

from __future__ import annotations

import pandas as pd

from ffpa.record.profile import KernelProfile

from .names import Contestant
from .results import NotRecordedError, Results


def profile_table(results: Results) -> pd.DataFrame:
    """One line per profiled launch.

    Raises:
        NotRecordedError: there is no profile of the device.
    """
    if results.profiles is None:
        raise NotRecordedError(
            "no profile.json: `nox -s profile` on a machine with a GPU records one"
        )
    return pd.DataFrame([_line(one) for one in results.profiles.profiles])


def profile_caption(results: Results) -> str:
    """What the table rests on; after profile_table, which tells when there is none."""
    record = results.profiles
    assert record is not None
    stale = "" if record.source_hash == results.source_hash else "; STALE, of other kernel sources"
    first = record.profiles[0]
    return (
        f"{results.device}; B={first.batch} H={first.nheads_q} N={first.seqlen_q} {first.dtype}; "
        f"{record.tool}, one launch each; busy: share of cycles; stalls: share of a resident "
        f"warp's time{stale}"
    )


def _line(one: KernelProfile) -> dict[str, str]:
    waits = {name: share for name, share in one.stalls.items() if name != "selected"}
    worst = sorted(waits, key=lambda name: -waits[name])[:3]
    return {
        "kernel": Contestant(one.kernel, one.acc).label,
        "D": str(one.headdim),
        "tensor busy": f"{one.tensor_pct:.0f} %",
        "issue": f"{one.issue_pct:.0f} %",
        "shared memory": f"{one.shared_pct:.0f} %",
        "bank conflicts": f"{one.conflict_share:.2%}".replace("%", " %"),
        "L2 TB/s": f"{one.l2_tb_per_s:.1f}",
        "DRAM TB/s": f"{one.dram_tb_per_s:.2f}",
        "registers": str(one.registers),
        "shared KiB": f"{one.smem_bytes / 1024:.0f}",
        "longest stalls": ", ".join(f"{name} {waits[name]:.0%}" for name in worst),
    }

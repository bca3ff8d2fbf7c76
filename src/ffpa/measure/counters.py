"""Nsight Compute: the counters to ask for, and how its output becomes a KernelProfile."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict

from ffpa.record.profile import KernelProfile

from .contestants import Contestant
from .shape import Shape

SECTOR_BYTES = 32
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle",
    "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction",
    "not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
OF_PEAK = ".avg.pct_of_peak_sustained_elapsed"
# By field of KernelProfile: the counter, and what to multiply it by.
COUNTERS = {
    "duration_ms": ("gpu__time_duration.sum", 1e-6),
    "clock_mhz": ("gpc__cycles_elapsed.avg.per_second", 1e-6),
    "tensor_pct": ("sm__pipe_tensor_cycles_active" + OF_PEAK, 1),
    "issue_pct": ("smsp__issue_active.avg.pct_of_peak_sustained_active", 1),
    "shared_pct": ("l1tex__data_pipe_lsu_wavefronts" + OF_PEAK, 1),
    "shared_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 1),
    "bank_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 1),
    "load_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", 1),
    "load_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", 1),
    "store_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", 1),
    "store_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", 1),
    "l2_pct": ("lts__throughput" + OF_PEAK, 1),
    "l2_tb_per_s": ("lts__t_sectors.sum.per_second", SECTOR_BYTES * 1e-12),
    "dram_pct": ("gpu__dram_throughput" + OF_PEAK, 1),
    "warps_per_sm": ("sm__warps_active.avg.per_cycle_active", 1),
    "registers": ("launch__registers_per_thread", 1),
    "smem_bytes": ("launch__shared_mem_per_block", 1),
}
DRAM = ("dram__bytes_read.sum.per_second", "dram__bytes_write.sum.per_second")
WHOLE = {
    "shared_wavefronts", "bank_conflicts", "load_wavefronts", "load_conflicts",
    "store_wavefronts", "store_conflicts", "registers", "smem_bytes",
}  # fmt: skip

NO_PERMISSION = (
    "ncu may not read the hardware counters: run it as root, or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0; a container needs --cap-add=SYS_ADMIN"
)


class ProfilerError(RuntimeError):
    """The profiler gave no counters; one sentence with the fix."""


def ncu_options() -> list[str]:
    """Arguments of ncu: only what lies between profiler start and stop, clocks left alone."""
    metrics = [name for name, _ in COUNTERS.values()]
    metrics += [*DRAM, *map(STALL.format, STALLS)]
    return [
        *("--profile-from-start", "off", "--clock-control", "none"),
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--metrics", ",".join(metrics)),
    ]


def read_ncu(text: str) -> list[dict[str, str]]:
    """One dictionary per profiled launch, from ncu's raw page as CSV.

    Raises:
        ProfilerError: ncu says why it has none.
    """
    if "ERR_NVGPUCTRPERM" in text:
        raise ProfilerError(NO_PERMISSION)
    table = [line for line in text.splitlines() if line.startswith('"')]
    faults = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    if not table:
        why = faults[0].removeprefix("==ERROR==").strip() if faults else "it printed no table"
        raise ProfilerError(f"ncu profiled nothing: {why}")
    head, _units, *launches = csv.reader(table)
    return [dict(zip(head, values, strict=True)) for values in launches]


def profile_of(
    launch: dict[str, str], contestant: Contestant, shape: Shape, instance: str
) -> KernelProfile:
    """What is kept of a launch. Raises ProfilerError naming a counter that it lacks."""
    numbers = {
        field: _number(launch, counter) * factor for field, (counter, factor) in COUNTERS.items()
    }
    waits = {name: _number(launch, STALL.format(name)) for name in STALLS}
    total = sum(waits.values())
    facts = asdict(shape)
    facts.pop("causal")
    return KernelProfile.model_validate(
        {
            **facts,
            **{
                field: int(value) if field in WHOLE else _rounded(value)
                for field, value in numbers.items()
            },
            "kernel": contestant.kernel,
            "acc": contestant.acc,
            "instance": instance,
            "entry": launch["Kernel Name"].split("<")[0].removeprefix("void "),
            "dram_tb_per_s": _rounded(sum(_number(launch, name) for name in DRAM) * 1e-12),
            "stalls": {name: _rounded(value / total) for name, value in waits.items() if value},
        }
    )


def matched(
    launches: Sequence[dict[str, str]], wanted: Sequence[tuple[Contestant, Shape, str]]
) -> list[KernelProfile]:
    """Profiles of the launches, which come in the order of what was wanted."""
    return [profile_of(launch, *one) for launch, one in zip(launches, wanted, strict=False)]


def _number(launch: dict[str, str], counter: str) -> float:
    try:
        return float(launch[counter].replace(",", ""))
    except (KeyError, ValueError):
        found = launch.get(counter, "nothing")
        raise ProfilerError(
            f"ncu gave {found} for {counter}: this version or GPU names it otherwise"
        ) from None


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")

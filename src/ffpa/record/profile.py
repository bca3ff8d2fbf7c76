"""What a profiler's counters say of the kernels: profile.json beside the rows of a device."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from .row import AccName, DTypeName, Hash

PROFILE_FILE = "profile.json"


class KernelProfile(BaseModel):
    """One launch under the profiler. Shares are of the hardware's peak over the whole launch."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kernel: str
    acc: AccName
    instance: str
    entry: str  # the function that the profiler saw
    dtype: DTypeName
    batch: int
    nheads_q: int
    nheads_kv: int
    seqlen_q: int
    seqlen_k: int
    headdim: int
    duration_ms: float  # with the caches cold and clocks as they were: not a measurement of speed
    clock_mhz: float
    tensor_pct: float  # cycles with the tensor pipe busy
    issue_pct: float  # cycles in which a scheduler issues
    shared_pct: float  # of the pipe that shared memory is read and written through
    shared_wavefronts: int
    bank_conflicts: int
    # Loads (ldmatrix among them) and stores by a warp's instructions; None in earlier records.
    load_wavefronts: int | None = None
    load_conflicts: int | None = None
    store_wavefronts: int | None = None
    store_conflicts: int | None = None
    l2_pct: float
    l2_tb_per_s: float  # sectors of 32 bytes that L2 looked up
    dram_pct: float
    dram_tb_per_s: float
    warps_per_sm: float
    registers: int
    smem_bytes: int
    stalls: dict[str, float]  # share of a resident warp's time by what it waits for; adds up to 1

    @property
    def conflict_share(self) -> float:
        """Wavefronts of shared memory that only bank conflicts made necessary."""
        return _share(self.bank_conflicts, self.shared_wavefronts)

    @property
    def conflict_shares(self) -> tuple[float, float] | None:
        """The same of loads and of stores alone; None where they were not told apart."""
        loads = self.load_conflicts, self.load_wavefronts
        stores = self.store_conflicts, self.store_wavefronts
        if None in (*loads, *stores):
            return None
        return _share(*loads), _share(*stores)


def _share(part: int | None, whole: int | None) -> float:
    return part / whole if part and whole else 0.0


class Profiles(BaseModel):
    """All profiles of a device, from one run of the profiler."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    started: str
    tool: str
    env_hash: Hash
    source_hash: Hash
    profiles: list[KernelProfile]


def save_profiles(folder: Path, profiles: Profiles) -> Path:
    """Write profile.json, in place of an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PROFILE_FILE
    path.write_text(profiles.model_dump_json(by_alias=True, indent=1) + "\n")
    return path


def load_profiles(folder: Path) -> Profiles | None:
    """The profiles of a device; None when none were recorded."""
    path = folder / PROFILE_FILE
    return Profiles.model_validate_json(path.read_text()) if path.exists() else None

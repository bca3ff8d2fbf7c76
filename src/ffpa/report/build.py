"""The build report: what each compiled configuration takes of a multiprocessor; needs no GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ffpa.extension import Instance

WARP = 32
PARTITIONS = 4  # of a multiprocessor, each with its own registers
REGISTERS = 16384  # of a partition
REGISTER_UNIT = 256  # a warp's registers come in these
CTAS = 32  # at most, on the architectures below
RESERVED_SMEM = 1024  # bytes of each CTA that the system keeps


class Multiprocessor(NamedTuple):
    """What the CTAs of one multiprocessor share."""

    warps: int
    smem_bytes: int


# From the table of technical specifications in the CUDA programming guide.
MULTIPROCESSORS = {
    "80": Multiprocessor(64, 164 * 1024),
    "90": Multiprocessor(64, 228 * 1024),
    "90a": Multiprocessor(64, 228 * 1024),
}

HEADER = f"{'configuration':44} {'arch':4} threads registers spills {'smem':>7} CTAs/SM occupancy"


def resident_ctas(arch: str, num_threads: int, registers: int, smem_bytes: int) -> int:
    """How many CTAs a multiprocessor holds at once; ValueError for an architecture not known."""
    if arch not in MULTIPROCESSORS:
        raise ValueError(f"sm_{arch} has no entry: choose from {', '.join(MULTIPROCESSORS)}")
    whole = MULTIPROCESSORS[arch]
    warps = -(-num_threads // WARP)
    per_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    return min(
        CTAS,
        whole.warps // warps,
        REGISTERS // per_warp * PARTITIONS // warps,
        whole.smem_bytes // (smem_bytes + RESERVED_SMEM),
    )


def build_report(instances: Iterable[Instance], info: dict[str, Any]) -> Iterator[str]:
    """A line for each configuration and architecture: what ptxas said, and what fits at once."""
    yield HEADER
    for instance in instances:
        for arch, used in sorted(info["kernels"][instance["name"]].items()):
            threads, registers = instance["num_threads"], used["registers"]
            smem = instance["smem_bytes"] + used["static_smem_bytes"]
            line = f"{instance['name']:44} {arch:4} {threads:7} {registers:9}"
            line += f" {used['spill_bytes']:6} {smem:7}"
            if arch in MULTIPROCESSORS:
                ctas = resident_ctas(arch, threads, registers, smem)
                occupancy = ctas * threads / WARP / MULTIPROCESSORS[arch].warps
                line += f" {ctas:7} {occupancy:9.0%}"
            yield line

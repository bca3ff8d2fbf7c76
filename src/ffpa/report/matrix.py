"""The README's table of what kernel="auto" takes by kind of call and device, from the predicate.

How much shared memory a kernel takes is known once it is compiled, and the README is made without a
build. So SMEM keeps what the last whole build said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ffpa import extension
from ffpa.extension import Instance
from ffpa.problem import MAX_HEADDIM, Problem
from ffpa.record.provenance import tree_source_hash
from ffpa.record.store import REPOSITORY
from ffpa.split_keys import ROW_TILE
from ffpa.support import FEW_QUERIES, FEW_ROWS, DeviceLimits, find
from ffpa_build import manifest

SMEM = REPOSITORY / "docs" / "smem_bytes.json"

# By compute capability and shared memory of a CTA, which is what tells devices apart here.
DEVICES = {
    "sm_90: H100, H200, GH200 (227 KiB)": DeviceLimits((9, 0), 227 * 1024),
    "sm_80: A100 (163 KiB)": DeviceLimits((8, 0), 163 * 1024),
    "sm_86, sm_89: RTX 30, RTX 40, L40 (99 KiB)": DeviceLimits((8, 6), 99 * 1024),
}
F16_SUMS = [acc for acc in manifest.ACCS if acc != "f32"]
FEW = {"seqlen_q": FEW_QUERIES}
SO_FEW = f"at most {FEW_QUERIES} queries a head, or {FEW_ROWS} in all"
SHARING = f"at most {ROW_TILE} queries that share a key head"
SHARED = {"seqlen_q": ROW_TILE // 4}
CALLS: dict[str, dict[str, Any]] = {
    "fp16 or bf16, F32 accumulation": {},
    f"the same, {SO_FEW}": FEW,
    f"the same, {SHARING}": SHARED,
    "fp16 or bf16, F32 accumulation, with `attn_mask`": {"masked": True},
    f"the same, {SO_FEW}, with `attn_mask`": {**FEW, "masked": True},
    f"the same, {SHARING}, with `attn_mask`": {**SHARED, "masked": True},
    **{f"fp16, `acc={acc}`": {"dtype": "fp16", "acc": acc} for acc in F16_SUMS},
    **{
        f"fp16, `acc={acc}`, with `attn_mask`": {"dtype": "fp16", "acc": acc, "masked": True}
        for acc in F16_SUMS
    },
    "bf16, any F16 accumulation": {"dtype": "bf16", "acc": "f16"},
}


def matrix_block() -> str:
    """A row for each kind of call; below it, kernels that are not in it."""
    smem_bytes = json.loads(SMEM.read_text())
    listed = manifest.load(REPOSITORY)
    known = [as_compiled(one, smem_bytes[one.name]) for one in listed if one.name in smem_bytes]
    lines = ["| call | " + " | ".join(DEVICES) + " |", "| --- " * (1 + len(DEVICES)) + "|"]
    for call, fields in CALLS.items():
        cells = [_answer(fields, limits, known) for limits in DEVICES.values()]
        lines.append(f"| {call} | " + " | ".join(cells) + " |")
    if missing := len(listed) - len(known):
        lines += [
            "",
            f"Without {missing} kernels that {SMEM.name} lacks: build all, `nox -s report`.",
        ]
    return "\n".join(lines) + "\n"


def remember_smem_bytes() -> bool:
    """Keep what a whole build of the tree's sources says; returns whether that changed it."""
    try:
        info, built = extension.build_info(), extension.kernels()
    except ImportError:
        return False
    if info["kernel_filter"] or info["source_hash"] != tree_source_hash():
        return False
    text = json.dumps(smem_bytes_of(built), indent=0) + "\n"
    if text == SMEM.read_text():
        return False
    SMEM.write_text(text)
    return True


def smem_bytes_of(instances: Iterable[Instance]) -> dict[str, int]:
    """Bytes of dynamic shared memory by instance name."""
    return {instance["name"]: instance["smem_bytes"] for instance in instances}


def as_compiled(instance: manifest.Instance, smem_bytes: int) -> Instance:
    """What the predicate reads of an instance, without the extension."""
    return Instance(
        name=instance.name, id=instance.id, dtype=instance.dtype, acc=instance.acc,
        headdim=instance.headdim, variant=instance.variant, fallback=instance.fallback,
        narrow=instance.narrow, masks=instance.masks, splits=instance.splits,
        max_seqlen_k=instance.max_seqlen_k, ctas=1, Br=0, Bc=0, num_threads=0,
        smem_bytes=smem_bytes, archs=list(instance.archs), lesson="", reason="",
    )  # fmt: skip


def _answer(fields: dict[str, Any], limits: DeviceLimits, instances: list[Instance]) -> str:
    """Ranges of D with the kernel of each, as in "8-512: `split_d-sm90`"; the dtypes agree."""
    ranges: list[tuple[str | None, int, int]] = []
    sizes = {"batch": 1, "nheads_q": 32, "nheads_kv": 8, "seqlen_q": 8192, "seqlen_k": 8192}
    for headdim in range(8, MAX_HEADDIM + 1, 8):
        dtypes = [fields["dtype"]] if "dtype" in fields else list(manifest.DTYPES)
        problems = [
            Problem(**{**sizes, **fields, "headdim": headdim, "dtype": dtype}) for dtype in dtypes
        ]
        chosen = {find(problem, limits, instances=instances).kernel for problem in problems}
        if len(chosen) > 1:
            raise ValueError(f"headdim {headdim}: {dtypes} get {chosen}: give each its own line")
        kernel = chosen.pop()
        if ranges and ranges[-1][0] == kernel:
            ranges[-1] = (kernel, ranges[-1][1], headdim)
        else:
            ranges.append((kernel, headdim, headdim))
    return "; ".join(
        f"{first}–{last}: {f'`{kernel}`' if kernel else 'refused'}"
        for kernel, first, last in ranges
    )

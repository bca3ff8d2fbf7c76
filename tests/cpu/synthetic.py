"""Rows made up for tests of the report: never recorded, never shown outside a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ffpa.record import Environment, Row, append_rows, iqr_of, median_of, remember
from ffpa.record.environment import Build, Gpu, Run, Software

SOURCES = "a" * 64
OTHER_SOURCES = "b" * 64
HEADDIMS = range(320, 1025, 64)
FLOPS_PER_D = 4 * 32 * 8192**2


def environment(capability: str | None = "9.0") -> Environment:
    gpu = Gpu(name="Test GPU", capability=capability, memory_bytes=1) if capability else None
    software = Software(torch="2.x", python="3.x", os="Linux", libc="glibc", arch="x86_64")
    costs = {"registers": 168, "spill_bytes": 0, "stack_bytes": 0, "static_smem_bytes": 0}
    spilled = costs | {"registers": 255, "spill_bytes": 16}
    kernels = {
        f"split_d-sm80/d{dim}/fp16/{acc}": {"80": costs, "90": spilled if dim > 1000 else costs}
        for dim in HEADDIMS
        for acc in ("f16", "f32")
    }
    build = Build(
        archs=["80", "90"], flags=["-O3"], nvcc="13.0", host_compiler="gcc", kernels=kernels
    )
    run = Run(
        started="2026-01-01T00:00:00Z", version="0", command="run.py experiment=headdim", config={}
    )
    return Environment(gpu=gpu, software=software, builds={SOURCES: build}, runs={"run": run})


ENV_HASH = environment().env_hash


def row(
    kernel: str, acc: str | None, headdim: int, tflops: float | None = None, **fields: Any
) -> Row:
    """A row at the headline size; `tflops` None gives one that could not run."""
    values: dict[str, Any] = {
        "run_id": "run", "experiment": "headdim", "process": 1, "seed": 0,
        "kernel": kernel, "acc": acc, "backend": kernel,
        "dtype": "fp16", "batch": 1, "nheads_q": 32, "nheads_kv": 32,
        "seqlen_q": 8192, "seqlen_k": 8192, "headdim": headdim, "causal": False,
        "status": "unsupported", "reason": "refuses",
        "env_hash": ENV_HASH, "source_hash": SOURCES,
    }  # fmt: skip
    if tflops is not None:
        values |= {"status": "ok", "reason": None, "samples_ms": _samples(tflops, headdim, fields)}
        values |= {"err_rel": 3e-4, "err_max": 2e-3}
    values |= fields
    samples = values.get("samples_ms")
    if samples:
        values |= {"median_ms": median_of(samples), "iqr_ms": iqr_of(samples)}
        values |= {"tflops": round(FLOPS_PER_D * headdim / values["median_ms"] / 1e9, 3)}
        values |= {"rounds": len(samples)}
    return Row(**values)


def headdim_rows(**fields: Any) -> list[Row]:
    """The headdim experiment with every kind of contestant, gaps and failures among them."""
    rows = []
    for dim in HEADDIMS:
        share = 1 - abs(dim - 576) / 1500
        rows += [
            row("sdpa-efficient", None, dim, 130.0, **fields),
            row("split_d-sm80", "f16", dim, 220 * share, **fields),
            row("split_d-sm80", "f32", dim, 200 * share, **fields),
            row("naive", "f32", dim, 1.5, **fields),
            row("sdpa-flash", None, dim, **fields),
            row("sdpa-math", None, dim, None if dim > 800 else 40.0, **_oom(dim), **fields),
            row("ffpa-attn", None, dim, 330.0 if dim <= 512 else None, **fields),
            row("ceiling-matmul", None, dim, 600.0, **fields),
        ]
        wrong = {"status": "wrong_result", "reason": "relative error 0.5 is above the bound 1e-3"}
        sm90 = wrong if dim == 640 else {}
        rows.append(row("split_d-sm90", "f32", dim, 500 * share, **sm90, **fields))
    return rows


def ladder_rows(**fields: Any) -> list[Row]:
    """The ladder experiment: step 3 is wrong at one length, flash-attn 4 cannot run."""
    steps = ("1-base", "2-async-copy", "3-eager-loads", "10-ring")
    rows = []
    for seqlen in (1024, 2048, 4096, 8192):
        size = {"experiment": "ladder", "batch": 16, "seqlen_q": seqlen, "seqlen_k": seqlen} | fields
        share = 16 * (seqlen / 8192) ** 2  # of the operations of the headline size
        rates = {f"ladder-{step}": 160.0 + 40 * place for place, step in enumerate(steps)}
        for kernel, rate in {**rates, "split_d-sm90": 640.0}.items():
            wrong = {"status": "wrong_result", "reason": "relative error 0.5"}
            fault = wrong if (kernel, seqlen) == ("ladder-3-eager-loads", 2048) else {}
            rows.append(row(kernel, "f32", 128, rate / share, **size, **fault))
        rows += [
            row("sdpa-flash", None, 128, 320.0 / share, **size),
            row("sdpa-cudnn", None, 128, 600.0 / share, **size),
            row("flash-attn-4", None, 128, **size),
            row("ceiling-matmul", None, 128, 650.0 / share, **size),
        ]
    return [one.model_copy(update=_true_rate(one)) for one in rows]


def write(folder: Path, rows: list[Row]) -> Path:
    """A results folder that holds these rows and the environment they name."""
    for entry in rows:
        append_rows(folder / f"{entry.experiment}.jsonl", [entry])
    remember(folder, environment())
    return folder


def _oom(dim: int) -> dict[str, str]:
    return {"status": "oom", "reason": "scores take 64 GiB"} if dim > 800 else {}


def _samples(tflops: float, headdim: int, fields: dict[str, Any]) -> list[float]:
    rng = np.random.default_rng([headdim, int(tflops * 10), fields.get("process", 1)])
    centre = FLOPS_PER_D * headdim / tflops / 1e9
    return [round(float(value), 6) for value in centre * rng.normal(1, 0.02, size=20)]


def _true_rate(one: Row) -> dict[str, float]:
    """row() counts the operations of the headline size."""
    if one.median_ms is None:
        return {}
    operations = 4 * one.batch * one.nheads_q * one.seqlen_q**2 * one.headdim
    return {"tflops": round(operations / one.median_ms / 1e9, 3)}

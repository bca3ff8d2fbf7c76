"""Rows made up for tests of the report: never recorded, never shown outside a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ffpa.record import Environment, Row, append_rows, iqr_of, median_of, remember
from ffpa.record.environment import Build, Gpu, Run, Software
from ffpa.record.profile import KernelProfile, Profiles

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


def other_rows(**fields: Any) -> list[Row]:
    """The other experiments with what their figures have to cope with."""
    return [
        entry
        for make in (
            _dtypes,
            _causal,
            _gqa,
            _variants,
            _padding,
            _accumulation,
            _ablation,
            _seqlen,
            _scenarios,
            _accuracy,
            _stalls,
            _peers,
            _roofline,
        )
        for entry in make({"experiment": make.__name__.removeprefix("_"), **fields})
    ]


def profiles() -> Profiles:
    """Counters of two launches."""
    shares = {"tensor_pct": 61.0, "issue_pct": 30.0, "shared_pct": 55.0, "l2_pct": 40.0}
    rates = {"dram_pct": 5.0, "dram_tb_per_s": 0.25, "l2_tb_per_s": 5.1, "clock_mhz": 1612.0}
    counts = {"shared_wavefronts": 1000, "bank_conflicts": 3, "registers": 168, "smem_bytes": 1024}
    counts |= {"load_wavefronts": 600, "load_conflicts": 0}
    counts |= {"store_wavefronts": 400, "store_conflicts": 3}
    common = row("naive", "f32", 512).model_dump(
        include={"dtype", "batch", "nheads_q", "nheads_kv", "seqlen_q", "seqlen_k", "headdim"}
    )
    entries = [
        KernelProfile(
            kernel=kernel, acc="f32", instance=f"{kernel}/d512/fp16/f32", entry="x",
            duration_ms=6.1, warps_per_sm=12.0, stalls={"wait": 0.6, "selected": 0.4},
            **common, **shares, **rates, **counts,
        )
        for kernel in ("split_d-sm80", "split_d-sm90")
    ]  # fmt: skip
    return Profiles(
        schema=1, started="2026-01-01T00:00:00Z", tool="Nsight Compute 1", env_hash=ENV_HASH,
        source_hash=SOURCES, profiles=entries,
    )  # fmt: skip


def _dtypes(fields: dict[str, Any]) -> list[Row]:
    return [
        row(kernel, acc, dim, rate, dtype=dtype, **fields)
        for dim in range(64, 1025, 64)
        for dtype, share in (("fp16", 1.0), ("bf16", 1.1))
        for kernel, acc, rate in (
            ("sdpa-efficient", None, 130.0),
            ("sdpa-cudnn", None, 600.0 if dim <= 256 else None),
            ("split_d-sm90", "f32", 500.0 * share),
            ("ceiling-matmul", None, 600.0 * share),
        )
    ]


def _causal(fields: dict[str, Any]) -> list[Row]:
    dims = {8192: range(64, 1025, 64), 16384: range(64, 513, 64)}
    return [
        row(kernel, acc, dim, rate * share, seqlen_q=length, seqlen_k=length, causal=causal,
            **fields)
        for length in dims
        for dim in dims[length]
        for causal, share in ((False, 1.0), (True, 0.9 if length == 16384 else 0.8))
        for kernel, rate in (("split_d-sm80", 300.0), ("split_d-sm90", 600.0))
        for acc in ("f16", "f32")
    ]  # fmt: skip


def _gqa(fields: dict[str, Any]) -> list[Row]:
    return [
        row(kernel, "f32", dim, rate * share, nheads_kv=heads, **fields)
        for dim in (64, 128, 256, 320, 512, 1024)
        for heads, share in ((32, 1.0), (4, 1.02))
        for kernel, rate in (("split_d-sm80", 300.0), ("split_d-sm90", 600.0))
    ]


def _variants(fields: dict[str, Any]) -> list[Row]:
    """At D = 256 one of them is no other configuration than the first."""
    return [
        row("split_d-sm80", acc, dim, None if (variant, dim) == ("smem163", 256) else rate,
            variant=variant, **fields)
        for dim in (256, 320, 512, 1024)
        for acc in ("f16", "f32")
        for variant, rate in (("", 300.0), ("smem163", 270.0), ("smem99", 210.0))
    ]  # fmt: skip


def _padding(fields: dict[str, Any]) -> list[Row]:
    return [
        row("split_d-sm80", "f32", dim, rate, **fields)
        for dim, rate in {320: 320.0, 328: 260.0, 384: 310.0, 392: 270.0}.items()
    ]


def _accumulation(fields: dict[str, Any]) -> list[Row]:
    accs = {"f16": 3e-3, "f32": 3e-4, "qk32_pv16": 2.4e-3, "qk16_pv32": 1.6e-3, "f16f32": 7e-4}
    return [
        row(kernel, acc, dim, rate, **({"err_rel": error} if rate else {}), **fields)
        for dim in (320, 512, 576, 768, 1024)
        for number, (acc, error) in enumerate(accs.items())
        for kernel, rate in (
            ("split_d-sm80", 300.0 - 10 * number - dim / 20),
            ("split_d-sm90", 620.0 - dim / 10 if acc in ("f16", "f32") else None),
        )
    ] + [row("sdpa-efficient", None, dim, 130.0, **fields) for dim in (320, 512, 576, 768, 1024)]


def _ablation(fields: dict[str, Any]) -> list[Row]:
    variants = {"": 314.0, "stages1": 198.0, "padding": 277.0, "stages3": 316.5}
    return [
        *(row("split_d-sm80", "f32", 512, rate, variant=name, **fields)
          for name, rate in variants.items()),
        row("split_d-sm80", "f32", 512, variant="warps4x2", **fields),
        row("sdpa-efficient", None, 512, 145.0, **fields),
        row("split_d-sm80", "f32", 64, 316.0, **fields),
        row("split_d-sm80", "f32", 64, 300.0, variant="q_smem", **fields),
    ]  # fmt: skip


def _seqlen(fields: dict[str, Any]) -> list[Row]:
    rows = []
    for dim in (320, 512, 1024):
        for power in range(9, 16):
            size = {"seqlen_q": 2**power, "seqlen_k": 2**power} | fields
            share = 1 - 2.0 ** (8 - power)
            long = power == 15
            rows += [
                row("sdpa-efficient", None, dim, 140 * share, **size),
                row("sdpa-flash", None, dim, **size),
                row("sdpa-math", None, dim, None if long else 40 * share, **size),
                row("split_d-sm80", "f32", dim, 310 * share, **size),
                row("split_d-sm90", "f16", dim, None if long else 650 * share, **size),
                row("split_d-sm90", "f32", dim, 640 * share, **size),
                row("ceiling-matmul", None, dim, 700 * share, **size),
            ]
    return rows


def _scenarios(fields: dict[str, Any]) -> list[Row]:
    gemma = {"nheads_q": 8, "nheads_kv": 4, "causal": True, "dtype": "bf16"}
    vae = {"nheads_q": 1, "nheads_kv": 1, "seqlen_q": 4096, "seqlen_k": 4096}
    unnamed = {"batch": 3}
    return [
        row(kernel, acc, 512, rate, **sizes, **fields)
        for sizes in (gemma, vae, unnamed)
        for kernel, acc, rate in (
            ("sdpa-efficient", None, 126.0),
            ("sdpa-cudnn", None, None),
            ("sdpa-math", None, 18.0),
            ("split_d-sm80", "f16", None if "causal" in sizes else 290.0),
            ("split_d-sm80", "f32", 317.0),
            ("split_d-sm90", "f32", 697.0),
            ("ceiling-matmul", None, 700.0),
        )
    ]


def _accuracy(fields: dict[str, Any]) -> list[Row]:
    rows = []
    nan = {"status": "wrong_result", "reason": "the output holds NaN or infinity",
           "err_rel": None, "err_max": None}  # fmt: skip
    for dim in (64, 512, 1024):
        for length in (1024, 8192, 32768):
            for scale in (1.0, 16.0, 64.0, 256.0):
                size = {"seqlen_q": length, "seqlen_k": length, "input_scale": scale} | fields
                f16 = {"err_rel": 1e-4 * scale * dim**0.5} if scale < 256 else nan
                rows += [
                    row("sdpa-efficient", None, dim, 130.0, err_rel=2.8e-4, **size),
                    row("split_d-sm80", "f16", dim, 300.0, **f16, **size),
                    row("split_d-sm80", "f32", dim, 300.0, err_rel=2.9e-4, **size),
                ]
                rate, error = (None, {}) if length > 16384 else (600.0, f16)
                rows.append(row("split_d-sm90", "f16", dim, rate, **error, **size))
    return rows


def _stalls(fields: dict[str, Any]) -> list[Row]:
    """At 65536 keys F16 sums are wrong for the sm80 kernel, and the Hopper kernel refuses them."""
    rows = []
    for dim in (64, 512):
        for length in (1024, 65536):
            for mean in (1.0, 1.3):
                size = {"nheads_q": 4, "nheads_kv": 4, "seqlen_q": length, "seqlen_k": length,
                        "input_scale": 1e-3, "value_mean": mean, **fields}  # fmt: skip
                long = length == 65536
                wrong = {"status": "wrong_result", "reason": "above the bound", "err_rel": 0.5}
                rows += [
                    row("sdpa-efficient", None, dim, 130.0, err_rel=2.2e-4, **size),
                    row("split_d-sm80", "f16", dim, 300.0, **(wrong if long else {}), **size),
                    row("split_d-sm80", "f32", dim, 300.0, err_rel=2.3e-4, **size),
                    row("split_d-sm90", "f16", dim, None if long else 600.0, **size),
                    row("split_d-sm90", "f16f32", dim, **size),
                ]
    return rows


def _peers(fields: dict[str, Any]) -> list[Row]:
    rows = []
    for dim in (64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 768, 896, 1024):
        rows += [
            row("sdpa-efficient", None, dim, 130.0, **fields),
            row("sdpa-cudnn", None, dim, 600.0 if dim <= 256 else None, **fields),
            row("flex", None, dim, 90.0 if dim <= 512 else None, **fields),
            row("split_d-sm80", "f32", dim, 300.0, **fields),
            row("split_d-sm90", "f32", dim, 630.0, **fields),
            row("ceiling-matmul", None, dim, 690.0, **fields),
        ]
    return rows


def _roofline(fields: dict[str, Any]) -> list[Row]:
    rows = []
    for dim in (64, 128, 256, 320, 512, 576, 768, 1024):
        rows += [
            row("naive", "f32", dim, 5.0, **fields),
            row("split_d-sm80", "f32", dim, 300.0, **fields),
            row("split_d-sm90", "f16", dim, 640.0, **fields),
            row("split_d-sm90", "f32", dim, 630.0, **fields),
            row("ceiling-matmul", None, dim, 690.0, **fields),
            row("ceiling-square", None, dim, 720.0, **fields),
        ]
    return rows


def ladder_rows(**fields: Any) -> list[Row]:
    """The ladder experiment: step 3 is wrong at one length, flash-attn 4 cannot run."""
    steps = ("1-base", "2-async-copy", "3-eager-loads", "10-ring")
    rows = []
    for seqlen in (1024, 2048, 4096, 8192):
        size = {
            "experiment": "ladder",
            "batch": 16,
            "seqlen_q": seqlen,
            "seqlen_k": seqlen,
        } | fields
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

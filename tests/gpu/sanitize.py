"""NVIDIA's compute-sanitizer over small launches: `python tests/gpu/sanitize.py [--record FILE]`.

Each tool looks at each kernel in a process of its own, at sizes off every tile's grid, with causal
mask and without, grouped heads, a tail of the head dimension, narrower values, and where the kernel
takes one an attn_mask; `--fuzz CALLS` adds a part of tests/gpu/fuzz.py. Kernels come in the order
of KERNELS, the most telling first; what `--total` seconds do not reach is told and recorded. Exit
code 1 when anything is found or did not finish. Only kernels of this project are instrumented.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from harness import DTYPES, INSTANCES, Case, normal, poisoned, run_guarded, surrounded

from ffpa import build_info
from ffpa.support import ONE_HEADDIM, SPLIT_KV
from ffpa_build.sources import checks_hash

TOOLS = ("memcheck", "racecheck", "synccheck")
CASES = (Case(130, 200, 2, 1), Case(100, 300, 2, 1, "lower_right"), Case(5, 70, 4, 1))
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
MADE = re.compile(r"^(\d+) calls: all right", re.MULTILINE)
FUZZ = "fuzz"  # in the place of a kernel's name
FUZZ_SEED = 20261201
NO_TOOL = "compute-sanitizer is not installed: it comes with the CUDA toolkit; put it on the PATH"

# Every structure, variant and accumulator that has code of its own.
KERNELS = (
    # the structures: one, two and four CTAs a tile on Hopper, slices of D, splits of the keys
    "split_d-sm90/d128/fp16/f32",
    "split_d-sm90/d512/fp16/f32",
    "split_d-sm90/d1024/fp16/f32",
    "split_d-sm80/d512/fp16/f32",
    "split_kv-sm80/d512/fp16/f32",
    "split_d-sm90/d128/fp16/f32/splits",
    "split_d-sm90/d512/fp16/f32/splits",
    "split_d-sm90/d1024/fp16/f32/splits",
    # F16 accumulation
    "split_d-sm90/d128/fp16/f16",
    "split_d-sm90/d512/fp16/f16",
    "split_d-sm90/d1024/fp16/f16",
    "split_d-sm80/d512/fp16/f16",
    # attn_mask
    "split_d-sm90/d128/fp16/f32/masked",
    "split_d-sm90/d512/fp16/f32/masked",
    "split_d-sm90/d1024/fp16/f32/masked",
    "split_d-sm90/d128/fp16/f16/masked",
    "split_d-sm90/d512/fp16/f16/masked",
    "split_d-sm90/d1024/fp16/f16/masked",
    "split_d-sm80/d512/fp16/f32/masked",
    "split_d-sm80/d512/fp16/f16/masked",
    "split_d-sm80/d512/fp16/f16/masked99",
    "split_d-sm80/d768/fp16/f32/masked99",
    # a pair's side pieces, small pieces, its own half first; more of Q than slots, none of it in
    # registers
    "split_d-sm90/d896/fp16/f16",
    "split_d-sm90/d832/fp16/f16",
    "split_d-sm90/d704/fp16/f16",
    "split_d-sm90/d576/fp16/f32",
    "split_d-sm90/d640/fp16/f32",
    "split_d-sm90/d384/fp16/f32",
    # four warpgroups; two that take no turns
    "split_d-sm90/d64/fp16/f32",
    "split_d-sm90/d256/fp16/f32",
    # the mixed accumulators
    "split_d-sm80/d512/fp16/qk32_pv16",
    "split_d-sm80/d512/fp16/qk16_pv32",
    "split_d-sm80/d512/fp16/f16f32",
    # bf16
    "split_d-sm90/d128/bf16/f32",
    "split_d-sm90/d512/bf16/f32",
    "split_d-sm90/d1024/bf16/f32",
    "split_d-sm80/d512/bf16/f32",
    "split_kv-sm80/d1024/bf16/f32",
    "split_d-sm80/d512/bf16/f32/masked",
    "split_d-sm90/d512/bf16/f32/masked",
    # few rows a CTA, and less shared memory
    "split_d-sm80/d512/fp16/f32/rows32",
    "split_d-sm80/d512/fp16/f16/rows32",
    "split_d-sm80/d384/fp16/f32/rows64",
    "split_d-sm80/d512/fp16/f32/smem99",
    "split_d-sm80/d512/fp16/f16/smem99",
    "split_d-sm80/d1024/fp16/f32/smem163",
    "split_d-sm80/d1024/fp16/f16/smem163",
    # other layouts of warps: 4 x 1 with two rings, 4 x 2, 1 x 8
    "split_d-sm80/d64/fp16/f32",
    "split_d-sm80/d128/fp16/f32",
    "split_d-sm80/d256/fp16/f32",
    "split_d-sm80/d1024/fp16/f32",
    # the ladder's loads, swizzle, wide warps and ring, and the oracle
    "ladder-1-base/d128/fp16/f32",
    "ladder-4-swizzle/d128/fp16/f32",
    "ladder-9-wide-warps/d128/fp16/f32",
    "ladder-10-ring/d128/fp16/f32",
    "naive/d1024/fp16/f32",
    # what the ablation compares
    "split_d-sm80/d512/fp16/f32/padding",
    "split_d-sm80/d512/fp16/f32/kv_apart",
    "split_d-sm80/d512/fp16/f32/q_streamed",
    "split_d-sm80/d512/fp16/f32/stages1",
    "split_d-sm80/d512/fp16/f32/lead0",
    "split_d-sm80/d128/fp16/f32/q_registers",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=600, help="limit of each process")
    parser.add_argument("--total", type=float, default=3600, help="none is begun after so many")
    parser.add_argument("--kernels", nargs="+", metavar="PATTERN", help="of names, as in */masked")
    parser.add_argument("--fuzz", type=int, default=0, metavar="CALLS", help="also random calls")
    parser.add_argument("--record", type=Path, help="write what each found as JSON")
    parser.add_argument("--launch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no CUDA device visible")
    if options.launch:
        launch(options.launch)
        return 0
    if shutil.which("compute-sanitizer") is None:
        parser.error(NO_TOOL)
    names = chosen([instance["name"] for instance in INSTANCES], options.kernels)
    if not names:
        parser.error(f"no kernel that runs here is called like {' or '.join(options.kernels)}")
    if options.fuzz:
        names.insert(0, FUZZ)
    end = time.monotonic() + options.total

    def one(work: tuple[str, str]) -> dict[str, object] | None:
        late = time.monotonic() > end
        run = None if late else inspect(*work, options.seconds, options.fuzz)
        print(json.dumps(run) if run else f"not reached: {' '.join(work)}", flush=True)
        return run

    work = [(tool, name) for name in names for tool in TOOLS]
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = list(pool.map(one, work))
    left = [" ".join(item) for item, run in zip(work, runs, strict=True) if run is None]
    done = [run for run in runs if run is not None]
    if options.record:
        record = {
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "source_hash": build_info()["source_hash"],
            "tests_hash": checks_hash(Path(__file__).parents[2], "gpu_sanitizer"),
            "cases": [str(case) for case in CASES],
            "runs": done,
            "not_reached": left,
        }
        options.record.write_text(json.dumps(record, indent=1) + "\n")
    return int(any(run["found"] != 0 for run in done))


def chosen(names: Sequence[str], patterns: Sequence[str] | None) -> list[str]:
    """Of the kernels that run here those that match, or KERNELS in their order."""
    if patterns is None:
        return [name for name in KERNELS if name in names]
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def inspect(tool: str, name: str, seconds: float, calls: int) -> dict[str, object]:
    """What one tool found in one kernel, or in random calls; found is null where it did not finish.

    Each tensor has an allocation of its own, so that memcheck knows where it ends.
    """
    script = [__file__, "--launch", name]
    if name == FUZZ:
        script = [
            str(Path(__file__).with_name("fuzz.py")), "--tight", "--seed", str(FUZZ_SEED),
            "--calls", str(calls), "--seconds", str(0.8 * seconds),
        ]  # fmt: skip
    command = [
        "compute-sanitizer", "--tool", tool, "--kernel-name", "kernel_substring=ffpa",
        sys.executable, *script,
    ]  # fmt: skip
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    started = time.monotonic()
    run: dict[str, object] = {"tool": tool, "kernel": name}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=environment
        )
        told = done.stdout + done.stderr
        summary = SUMMARY.search(told)
        found = int(summary[1]) if summary and "all right" in told else None
        why = "" if found == 0 else told[-2000:]
        if made := MADE.search(told):
            run["calls"] = int(made[1])
    except subprocess.TimeoutExpired:
        found, why = None, f"no end after {seconds:g} s"
    took = round(time.monotonic() - started, 1)
    return run | {"found": found, "seconds": took, "output": why}


def launch(name: str) -> None:
    """Every case once, at each of the kernel's widths; says so at the end.

    The first width has nothing around it, for memcheck; NaN lies around the others.
    """
    instance = next(instance for instance in INSTANCES if instance["name"] == name)
    for case in CASES:
        for number, (headdim, headdim_v) in enumerate(widths(instance)):
            shape_q = (1, case.nheads_q, case.seqlen_q, headdim)
            shape_kv = (1, case.nheads_kv, case.seqlen_k)
            q, k, v = (
                normal(*shape, dtype=instance["dtype"], seed=seed)
                for seed, shape in enumerate(
                    [shape_q, (*shape_kv, headdim), (*shape_kv, headdim_v)]
                )
            )
            if number > 0:
                q, k, v = map(poisoned, (q, k, v))
            mask = mask_of(number, case, instance["dtype"]) if instance["masks"] else None
            cuts = instance["id"] == SPLIT_KV or instance["splits"]
            splits = 2 if cuts and number > 0 else None
            run_guarded(instance, q, k, v, case.diagonal, splits, mask)
    print(f"{name}: all right")


def widths(instance) -> list[tuple[int, int]]:
    """Columns of Q and K, and of V."""
    whole = instance["headdim"]
    narrower = [] if instance["id"].startswith(ONE_HEADDIM) else [(whole, whole // 16 * 8 + 8)]
    return [(whole, whole), (whole - 8, whole - 8), *narrower]


def mask_of(number: int, case: Case, dtype: str) -> torch.Tensor:
    """F32, of the element's type, or boolean: each width has another."""
    values = normal(1, case.nheads_q, case.seqlen_q, case.seqlen_k, seed=3)
    if number == 0:
        return values.float()
    if number == 1:
        return surrounded(values.to(DTYPES[dtype]), torch.nan, columns=1)
    return surrounded(values > -0.5, True, columns=1)


if __name__ == "__main__":
    sys.exit(main())

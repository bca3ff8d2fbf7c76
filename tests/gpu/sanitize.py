"""NVIDIA's compute-sanitizer over small launches: `python tests/gpu/sanitize.py [--record FILE]`.

Each tool looks at each kernel in a process of its own, at sizes off every tile's grid, with causal
mask and without, grouped heads and a tail of the head dimension. Exit code 1 when anything is found
or did not finish. Only kernels of this project are instrumented.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import torch
from harness import INSTANCES, Case, normal, poisoned, run_guarded, sample

from ffpa import build_info

TOOLS = ("memcheck", "racecheck", "synccheck")
CASES = (Case(130, 200, 2, 1), Case(100, 300, 2, 1, "lower_right"), Case(5, 70, 4, 1))
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
NO_TOOL = "compute-sanitizer is not installed: it comes with the CUDA toolkit; put it on the PATH"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=600, help="limit of each process")
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
    work = [(tool, name) for name in instances() for tool in TOOLS]
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = list(pool.map(lambda one: inspect(*one, options.seconds), work))
    for run in runs:
        print(json.dumps(run))
    if options.record:
        record = {
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "source_hash": build_info()["source_hash"],
            "cases": [str(case) for case in CASES],
            "runs": runs,
        }
        options.record.write_text(json.dumps(record, indent=1) + "\n")
    return int(any(run["found"] != 0 for run in runs))


def instances() -> list[str]:
    """Each structure of each kernel: one, two and four CTAs a tile on Hopper."""
    wanted = sample(128, 512, 1024, acc=("f32", "f16"))
    return [
        instance["name"]
        for instance in wanted
        if instance["dtype"] == "fp16"
        and (instance["id"] == "split_d-sm90" or instance["headdim"] == 512)
        and not instance["id"].startswith("ladder-")
    ]


def inspect(tool: str, name: str, seconds: float) -> dict[str, object]:
    """What one tool found in one kernel; found is null where it did not finish."""
    command = [
        "compute-sanitizer", "--tool", tool, "--kernel-name", "kernel_substring=ffpa",
        sys.executable, __file__, "--launch", name,
    ]  # fmt: skip
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        told = done.stdout + done.stderr
        summary = SUMMARY.search(told)
        found = int(summary[1]) if summary and "all right" in told else None
        why = "" if found == 0 else told[-2000:]
    except subprocess.TimeoutExpired:
        found, why = None, f"no end after {seconds:g} s"
    took = round(time.monotonic() - started, 1)
    return {"tool": tool, "kernel": name, "found": found, "seconds": took, "output": why}


def launch(name: str) -> None:
    """Every case once, into memory surrounded by NaN; says so at the end."""
    instance = next(instance for instance in INSTANCES if instance["name"] == name)
    for case in CASES:
        for headdim in (instance["headdim"], instance["headdim"] - 8):
            q, k, v = (
                poisoned(normal(1, heads, seqlen, headdim, dtype=instance["dtype"], seed=seed))
                for seed, (heads, seqlen) in enumerate(
                    [(case.nheads_q, case.seqlen_q), *2 * [(case.nheads_kv, case.seqlen_k)]]
                )
            )
            run_guarded(instance, q, k, v, case.diagonal)
    print(f"{name}: all right")


if __name__ == "__main__":
    sys.exit(main())

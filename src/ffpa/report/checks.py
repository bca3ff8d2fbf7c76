"""What the checks on a GPU gave that were recorded beside the rows, in words.

gpu_tests*.json come from pytest, gpu_fuzz*.json from tests/gpu/fuzz.py, gpu_sanitizer.json from
tests/gpu/sanitize.py. Each names the sources that were checked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Records = Sequence[dict[str, Any]]


def checks_told(folder: Path, source_hash: str) -> list[str]:
    """One sentence per kind of check, with counts; none for what was not recorded."""
    told = []
    for pattern, tell in (
        ("gpu_tests*.json", _tests),
        ("gpu_fuzz*.json", _fuzz),
        ("gpu_sanitizer.json", _sanitizer),
    ):
        records = [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]
        if records:
            stale = any(record["source_hash"] != source_hash for record in records)
            day = max(record["finished"] for record in records)[:10]
            told.append(f"{tell(records, day)}{'; STALE, of other sources' if stale else ''}")
    return told


def _tests(records: Records, day: str) -> str:
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(record["counts"])
    text = ", ".join(
        f"{count} {outcome}" for outcome, count in counts.items() if count or outcome == "failed"
    )
    launches = max((record["launches"] for record in records if "launches" in record), default=0)
    random = f"; {launches:,} random launches of each kernel" if launches else ""
    return f"GPU tests of {day}: {text}{random}"


def _fuzz(records: Records, day: str) -> str:
    calls, wrong = (
        sum(count(record) for record in records)
        for count in (lambda record: record["calls"], lambda record: len(record["failures"]))
    )
    minutes = sum(record["seconds"] for record in records) / 60
    refused = sum(record["counts"].get("refused", 0) for record in records)
    return (
        f"random calls of {day}: {calls:,} in {minutes:.0f} process-minutes, "
        f"{calls - refused - wrong:,} right, {refused:,} refused in words, {wrong} wrong"
    )


def _sanitizer(records: Records, day: str) -> str:
    parts = []
    for tool in dict.fromkeys(run["tool"] for record in records for run in record["runs"]):
        found = [
            run["found"] for record in records for run in record["runs"] if run["tool"] == tool
        ]
        unfinished = found.count(None)
        text = f"{tool} {sum(filter(None, found))} faults in {len(found) - unfinished} kernels"
        parts.append(text + (f" and no end in {unfinished}" if unfinished else ""))
    return f"compute-sanitizer of {day}: {', '.join(parts)}"

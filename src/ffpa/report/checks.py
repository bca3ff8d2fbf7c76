"""What the checks on a GPU gave that were recorded beside the rows, in words.

gpu_tests*.json come from pytest, gpu_fuzz*.json from tests/gpu/fuzz.py, gpu_sanitizer.json from
tests/gpu/sanitize.py. Each names the sources that were checked, and the files that checked them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ffpa.record.store import REPOSITORY
from ffpa_build.sources import checks_hash

Records = Sequence[dict[str, Any]]


def checks_told(folder: Path, source_hash: str) -> list[str]:
    """One sentence per kind of check, with counts; none for what was not recorded.

    It says so where the kernels, or the tests themselves, have changed since.
    """
    told = []
    for kind, tell in (
        ("gpu_tests", _tests),
        ("gpu_fuzz", _fuzz),
        ("gpu_sanitizer", _sanitizer),
    ):
        files = sorted(folder.glob(f"{kind}*.json"))
        records = {path.stem: json.loads(path.read_text()) for path in files}
        if records:
            day = max(record["finished"] for record in records.values())[:10]
            told.append(tell([*records.values()], day) + _age(records, source_hash, kind))
    return told


def _age(records: Mapping[str, dict[str, Any]], source_hash: str, kind: str) -> str:
    """What has changed since, or cannot be known."""
    by = {record.get("tests_hash") for record in records.values()}
    old = [name for name, record in records.items() if record["source_hash"] != source_hash]
    if old:
        part = f": {', '.join(old)}" if len(old) < len(records) else ""
        return f"; STALE, of other sources{part}"
    if None in by:
        return "; of tests that the record does not name"
    return "" if by == {checks_hash(REPOSITORY, kind)} else "; STALE, by other tests"


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
    runs = [run for record in records for run in record["runs"]]
    parts = []
    for tool in dict.fromkeys(run["tool"] for run in runs):
        own = [run for run in runs if run["tool"] == tool]
        ended = [run for run in own if run["found"] is not None]
        text = f"{tool} {sum(run['found'] for run in ended)} faults in "
        text += f"{sum('calls' not in run for run in ended)} kernels"
        if calls := sum(run.get("calls", 0) for run in ended):
            text += f" and {calls:,} random calls"
        parts.append(text + (f" and no end in {len(own) - len(ended)}" if own != ended else ""))
    left = sum(len(record.get("not_reached", [])) for record in records)
    unreached = f"; not reached: {left}" if left else ""
    return f"compute-sanitizer of {day}: {', '.join(parts)}{unreached}"

"""Builds all sheets into one folder, with a manifest for the report page and SHA256SUMS."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib import ft2font

from ffpa.report.results import NoRowsError, Results

from . import (
    bank_conflicts,
    ladder,
    speedup_f16,
    speedup_f32,
    table_build,
    table_headdim,
    table_ladder,
    tflops,
)
from .sheet import Sheet

OUT = Path(__file__).parent / "out"
SHEETS: tuple[Sheet, ...] = (
    speedup_f16.SHEET,
    speedup_f32.SHEET,
    tflops.SHEET,
    table_headdim.SHEET,
    table_build.SHEET,
    ladder.SHEET,
    table_ladder.SHEET,
    bank_conflicts.SHEET,
)
MANIFEST = "figures.json"
SUMS = "SHA256SUMS"


def build_all(results: Results, out: Path) -> tuple[list[str], list[str]]:
    """Build what the rows allow; returns the names built and why the others were not.

    Files of an earlier build that are no longer made are removed.
    """
    frames: dict[str, pd.DataFrame] = {}
    entries: list[dict[str, Any]] = []
    missing: dict[str, list[str]] = {}
    _remove_listed(out)
    for sheet in SHEETS:
        try:
            if sheet.experiment not in frames:
                frames[sheet.experiment] = results.frame(sheet.experiment)
            out.mkdir(parents=True, exist_ok=True)
            caption = sheet.build(results, frames[sheet.experiment], out)
        except NoRowsError as error:
            missing.setdefault(str(error), []).append(sheet.name)
            continue
        entries.append(_entry(sheet, caption, out))
    if entries:
        (out / MANIFEST).write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
        _write_sums(out)
    faults = [f"{', '.join(names)}: {error}" for error, names in missing.items()]
    return [entry["name"] for entry in entries], faults


def toolkit() -> str:
    """What decides the bytes of a picture besides the rows and this code."""
    versions = f"matplotlib {matplotlib.__version__}, FreeType {ft2font.__freetype_version__}"
    return f"{versions}, {platform.machine()}"


def _entry(sheet: Sheet, caption: str, out: Path) -> dict[str, Any]:
    return {
        "name": sheet.name,
        "title": sheet.title,
        "experiment": sheet.experiment,
        "caption": caption,
        "files": sorted(path.name for path in out.glob(f"{sheet.name}.*")),
    }


def _listed(out: Path) -> list[Path]:
    sums = out / SUMS
    lines = sums.read_text().splitlines() if sums.exists() else []
    return [out / line.split("  ", 1)[1] for line in lines if not line.startswith("#")]


def _remove_listed(out: Path) -> None:
    for path in [*_listed(out), out / SUMS]:
        path.unlink(missing_ok=True)


def _write_sums(out: Path) -> None:
    """Sums that `sha256sum -c` reads; it skips the comment that names the toolkit."""
    manifest = json.loads((out / MANIFEST).read_text())
    names = [MANIFEST, *(name for entry in manifest for name in entry["files"])]
    lines = [f"# {toolkit()}"]
    for name in sorted(names):
        lines.append(f"{hashlib.sha256((out / name).read_bytes()).hexdigest()}  {name}")
    (out / SUMS).write_text("\n".join(lines) + "\n")

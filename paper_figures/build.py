"""Builds all sheets into one folder, with a manifest for the report page and SHA256SUMS."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib import ft2font

from ffpa.report.results import NoRowsError, NotRecordedError, Results

from . import (
    ablation,
    accumulation,
    accuracy,
    bank_conflicts,
    causal,
    dtypes,
    ladder,
    peers,
    roofline,
    scenarios,
    seqlen,
    speedup_f16,
    speedup_f32,
    table_build,
    table_gqa,
    table_headdim,
    table_ladder,
    table_padding,
    table_stalls,
    table_variants,
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
    dtypes.SHEET,
    causal.SHEET,
    table_gqa.SHEET,
    table_variants.SHEET,
    table_padding.SHEET,
    peers.FIGURE,
    peers.TABLE,
    accumulation.FIGURE,
    accumulation.TABLE,
    accuracy.SHEET,
    table_stalls.SHEET,
    seqlen.SHEET,
    scenarios.FIGURE,
    scenarios.TABLE,
    ablation.FIGURE,
    ablation.TABLE,
    roofline.FIGURE,
    roofline.TABLE,
    roofline.PROFILE,
    ladder.SHEET,
    table_ladder.SHEET,
    bank_conflicts.SHEET,
)
MANIFEST = "figures.json"
SUMS = "SHA256SUMS"


class Built(NamedTuple):
    """What came of a build."""

    names: list[str]
    faults: list[str]  # sheets whose experiment was recorded, but not what they need
    unrecorded: list[str]  # sheets whose experiment was not recorded, or cannot run on the device


def build_all(results: Results, out: Path) -> Built:
    """Build what the rows allow, and say why the rest was not.

    Files of an earlier build that are no longer made are removed.
    """
    entries: list[dict[str, Any]] = []
    faults: dict[str, list[str]] = {}
    unrecorded: dict[str, list[str]] = {}
    _remove_listed(out)
    for sheet in SHEETS:
        try:
            frame = results.frame(sheet.experiment)
            out.mkdir(parents=True, exist_ok=True)
            caption = sheet.build(results, frame, out)
        except NotRecordedError as error:
            unrecorded.setdefault(str(error), []).append(sheet.name)
        except NoRowsError as error:
            faults.setdefault(str(error), []).append(sheet.name)
        else:
            entries.append(_entry(sheet, caption, out))
    if entries:
        (out / MANIFEST).write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
        _write_sums(out)
    return Built([entry["name"] for entry in entries], _told(faults), _told(unrecorded))


def _told(missing: dict[str, list[str]]) -> list[str]:
    return [f"{', '.join(names)}: {error}" for error, names in missing.items()]


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

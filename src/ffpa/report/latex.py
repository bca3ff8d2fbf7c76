"""A LaTeX sample with every figure and table, from the manifest of a folder of figures.

Its class, paper/sheets.cls, sets all of them on two sheets.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from ffpa.record.store import REPOSITORY

from .claims import load_claims
from .page import REDIRECTED, SITE
from .results import Results
from .tables import parts_of, tex_width
from .verdicts import judge_all

PAPER = SITE / "paper" if REDIRECTED else REPOSITORY / "paper"
TEMPLATE = Path(__file__).parent / "templates" / "sample.tex.j2"
CLASS = REPOSITORY / "paper" / "sheets.cls"
# What fits into a column of a usual class and into its page, in characters of \footnotesize.
COLUMN_WIDTH, FULL_WIDTH = 54, 112
SEPARATOR = "; "  # of a caption's sentences
# Beyond what TeX's own escapes cover: what our captions hold.
SYMBOLS = {
    "×": r"$\times$", "†": r"\dag{}", "−": r"$-$", "–": "--", "±": r"$\pm$", "≤": r"$\leq$",
    "√": r"$\surd$", "ᵀ": r"$^\top$", "·": r"$\cdot$", "%": r"\%", "&": r"\&", "#": r"\#",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
    "{": r"\{", "}": r"\}", "$": r"\$", "<": r"\textless{}", ">": r"\textgreater{}",
    "“": "``", "”": "''", "’": "'",
}  # fmt: skip


def escape(text: str) -> str:
    """Text as LaTeX sets it."""
    return "".join(SYMBOLS.get(character, character) for character in text)


def shared_meanings(captions: Iterable[str]) -> list[str]:
    """The sentences about a name ("matmuls storing S: ...") that more than one caption has."""
    counts = Counter(sentence for caption in captions for sentence in caption.split(SEPARATOR))
    return [sentence for sentence, count in counts.items() if count > 1 and ": " in sentence]


def without(caption: str, told: Iterable[str]) -> str:
    """A caption without the sentences that are told elsewhere."""
    left = SEPARATOR.join(part for part in caption.split(SEPARATOR) if part not in told)
    return left[:1].upper() + left[1:]


def write_sample(results: Results, figures: Path, out: Path) -> Path:
    """Write sample.tex and its class into `out`, its figures referred to where they lie.

    Raises:
        FileNotFoundError: the folder has no manifest, for nothing was built there.
    """
    entries: list[dict[str, Any]] = json.loads((figures / "figures.json").read_text())
    pictures, tables = (
        [entry for entry in entries if (f"{entry['name']}.pdf" in entry["files"]) == pictured]
        for pictured in (True, False)
    )
    meanings = shared_meanings(entry["caption"] for entry in tables)
    for entry in tables:
        table = pd.read_csv(figures / f"{entry['name']}.csv", dtype=str)
        width = max(tex_width(part) for part in parts_of(table))
        entry["wide"], entry["small"] = width > COLUMN_WIDTH, width > FULL_WIDTH
        entry["caption"] = without(entry["caption"], [results.device, *meanings])
    claims = [claim for claim in load_claims() if claim.source == "paper"]
    environment = jinja2.Environment(
        block_start_string="<%", block_end_string="%>", variable_start_string="<<",
        variable_end_string=">>", comment_start_string="<#", comment_end_string="#>",
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined, autoescape=False,
    )  # fmt: skip
    environment.filters["tex"] = escape
    text = environment.from_string(TEMPLATE.read_text()).render(
        pictures=pictures,
        tables=tables,
        verdicts=judge_all(claims, results),
        device=results.device,
        meanings=meanings,
        folder=os.path.relpath(figures.resolve(), out.resolve()),
    )
    out.mkdir(parents=True, exist_ok=True)
    if out.resolve() != CLASS.parent:
        shutil.copy(CLASS, out)
    path = out / "sample.tex"
    path.write_text(text)
    return path

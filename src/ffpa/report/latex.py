"""A LaTeX sample with every figure and table, from the manifest of a folder of figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jinja2

from ffpa.record.store import REPOSITORY

from .claims import load_claims
from .page import REDIRECTED, SITE
from .results import Results
from .verdicts import judge_all

PAPER = SITE / "paper" if REDIRECTED else REPOSITORY / "paper"
TEMPLATE = Path(__file__).parent / "templates" / "sample.tex.j2"
NARROW = 120  # characters: two such tables stand side by side
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


def write_sample(results: Results, figures: Path, out: Path) -> Path:
    """Write sample.tex into `out`, its figures referred to where they lie.

    Raises:
        FileNotFoundError: the folder has no manifest, for nothing was built there.
    """
    entries = json.loads((figures / "figures.json").read_text())
    for entry in entries:
        suffixes = {Path(name).suffix for name in entry["files"]}
        entry["picture"] = ".pdf" in suffixes
        entry["narrow"] = not entry["picture"] and _width(figures / f"{entry['name']}.md") < NARROW
    out.mkdir(parents=True, exist_ok=True)
    verdicts = [
        verdict for verdict in judge_all(load_claims(), results) if verdict.claim.source == "paper"
    ]
    environment = jinja2.Environment(
        block_start_string="<%", block_end_string="%>", variable_start_string="<<",
        variable_end_string=">>", comment_start_string="<#", comment_end_string="#>",
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined, autoescape=False,
    )  # fmt: skip
    environment.filters["tex"] = escape
    text = environment.from_string(TEMPLATE.read_text()).render(
        entries=entries,
        verdicts=verdicts,
        device=results.device,
        folder=os.path.relpath(figures.resolve(), out.resolve()),
    )
    path = out / "sample.tex"
    path.write_text(text)
    return path


def _width(table: Path) -> int:
    """Characters of the Markdown twin's lines: about as wide as the table will be set."""
    return len(table.read_text().partition("\n")[0])

"""A LaTeX sample with every figure and table, from the manifest of a folder of figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

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
# What fits into a column of the sample and into its page, in characters of \footnotesize.
COLUMN_WIDTH, FULL_WIDTH = 54, 112
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
    pictures = [entry for entry in entries if entry["picture"]]
    tables = [entry for entry in entries if not entry["picture"]]
    for entry in tables:
        table = pd.read_csv(figures / f"{entry['name']}.csv", dtype=str)
        width = max(tex_width(part) for part in parts_of(table))
        entry["wide"], entry["small"] = width > COLUMN_WIDTH, width > FULL_WIDTH
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
        pictures=pictures,
        tables=tables,
        verdicts=verdicts,
        device=results.device,
        folder=os.path.relpath(figures.resolve(), out.resolve()),
    )
    path = out / "sample.tex"
    path.write_text(text)
    return path

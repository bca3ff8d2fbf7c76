"""A LaTeX sample with every figure and table, from the manifest of a folder of figures."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import jinja2

from ffpa.record.store import REPOSITORY

from .claims import load_claims
from .page import REDIRECTED, SITE
from .results import Results
from .verdicts import judge_all

PAPER = SITE / "paper" if REDIRECTED else REPOSITORY / "paper"
TEMPLATE = Path(__file__).parent / "templates" / "sample.tex.j2"
COLUMNS = 3  # of pictures
PAGE_WIDTH = 195  # of tables, in characters
CAPTION_HEIGHT = 0.13  # of a picture, over its width
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
    heights = [_height(figures / f"{entry['name']}.svg") + CAPTION_HEIGHT for entry in pictures]
    tables = [entry for entry in entries if not entry["picture"]]
    widths = [_width(figures / f"{entry['name']}.md") for entry in tables]
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
        tables=[tables[place] for row in shelved(widths, PAGE_WIDTH) for place in row],
        columns=[pictures[start:end] for start, end in balanced(heights, COLUMNS)],
        verdicts=verdicts,
        device=results.device,
        folder=os.path.relpath(figures.resolve(), out.resolve()),
    )
    path = out / "sample.tex"
    path.write_text(text)
    return path


def balanced(heights: Sequence[float], columns: int) -> list[tuple[int, int]]:
    """The ranges, in order, that make as many columns whose tallest is as low as can be."""
    count = len(heights)
    options = [
        list(itertools.pairwise([0, *cuts, count]))
        for cuts in itertools.combinations_with_replacement(range(count + 1), columns - 1)
    ]
    return min(options, key=lambda option: max(sum(heights[slice(*part)]) for part in option))


def shelved(widths: Sequence[int], room: int) -> list[list[int]]:
    """The places of `widths` in rows, each in the first row that has room for it."""
    rows: list[list[int]] = []
    for place, width in enumerate(widths):
        for row in rows:
            if sum(widths[other] for other in row) + width <= room:
                row.append(place)
                break
        else:
            rows.append([place])
    return rows


def _height(picture: Path) -> float:
    """Of an SVG, over its width."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture.read_text())
    if not found:
        raise ValueError(f"{picture.name} has no viewBox: build the figures again")
    return float(found[2]) / float(found[1])


def _width(table: Path) -> int:
    """Characters of the Markdown twin's lines: about as wide as the table will be set."""
    return len(table.read_text().partition("\n")[0])

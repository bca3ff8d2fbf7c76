"""The LaTeX sample: every figure and table is in it, and it can be set."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from ffpa.record.store import REPOSITORY
from ffpa.report.latex import escape, write_sample
from ffpa.report.results import Results
from ffpa.report.tables import PAGE_WIDTH, parts_of, tex_width, to_tex
from paper_figures.build import OUT


@pytest.fixture(scope="module")
def sample(results: Results, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(results, built, tmp_path_factory.mktemp("paper"))


def included(text: str) -> set[str]:
    pictures = re.findall(r"\\includegraphics\[.*?\]\{(\w+)\.pdf\}", text)
    tables = re.findall(r"\\input\{[^}]*?(\w+)\.tex\}", text)
    return {*pictures, *tables}


def manifest(folder: Path) -> set[str]:
    return {entry["name"] for entry in json.loads((folder / "figures.json").read_text())}


def test_every_figure_and_table_is_in_it(sample: Path, built: Path) -> None:
    text = sample.read_text()
    assert included(text) == manifest(built)
    assert "speed-up of F16 over EA peaks near 2.2" in text


def test_the_committed_sample_has_what_is_committed() -> None:
    text = (REPOSITORY / "paper" / "sample.tex").read_text()
    assert included(text) == manifest(OUT), "out of date: run `nox -s paper`"


def test_text_is_escaped() -> None:
    assert escape("50 % of a_b & c × d†") == r"50 \% of a\_b \& c $\times$ d\dag{}"


def test_figures_are_as_wide_as_a_column_and_no_type_is_smaller_than_scriptsize(
    sample: Path,
) -> None:
    text = sample.read_text()
    pictures = re.findall(r"\\includegraphics\[(.*?)\]", text)
    assert pictures and set(pictures) == {r"width=\columnwidth"}
    body = text[text.index(r"\begin{document}") :]
    for shrunk in (r"\tiny", "resizebox", "scalebox"):
        assert shrunk not in body, shrunk


def test_a_table_wider_than_a_page_is_split_and_each_part_tells_its_lines_apart() -> None:
    wide = pd.DataFrame({"kernel": ["a", "a"], "D": ["64", "128"]} | {
        f"column {number}": ["x" * 30] * 2 for number in range(6)
    })  # fmt: skip
    parts = parts_of(wide)
    assert len(parts) == 2 and all(tex_width(part) <= PAGE_WIDTH for part in parts)
    assert all(list(part)[:2] == ["kernel", "D"] for part in parts)
    assert [name for part in parts for name in list(part)[2:]] == list(wide)[2:]
    assert to_tex(wide).count(r"\begin{tabular}") == 2
    assert len(parts_of(wide.iloc[:, :5])) == 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_it_can_be_set(sample: Path) -> None:
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", sample.name]
    for _ in range(2):
        done = subprocess.run(command, cwd=sample.parent, capture_output=True, text=True)
        assert done.returncode == 0, (sample.with_suffix(".log")).read_text()[-2000:]
    log = sample.with_suffix(".log").read_text()
    assert "Output written on sample.pdf" in log
    for fault in ("Missing character", "undefined", "Overfull"):
        assert fault not in log, fault

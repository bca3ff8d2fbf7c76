"""The LaTeX sample: every figure and table is in it, and it can be set."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ffpa.record.store import REPOSITORY
from ffpa.report.latex import balanced, escape, shelved, write_sample
from ffpa.report.results import Results
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


def test_columns_are_in_order_and_as_even_as_they_can_be() -> None:
    assert balanced([1.0, 1.0, 2.0, 2.0], 3) == [(0, 2), (2, 3), (3, 4)]
    assert balanced([1.0], 3) == [(0, 0), (0, 0), (0, 1)]


def test_tables_stand_side_by_side_where_there_is_room() -> None:
    assert shelved([120, 100, 60, 90, 200], 190) == [[0, 2], [1, 3], [4]]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_it_can_be_set_on_two_pages(sample: Path) -> None:
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", sample.name]
    for _ in range(2):
        done = subprocess.run(command, cwd=sample.parent, capture_output=True, text=True)
        assert done.returncode == 0, (sample.with_suffix(".log")).read_text()[-2000:]
    log = sample.with_suffix(".log").read_text()
    assert "Output written on sample.pdf (2 pages" in log
    for fault in ("Missing character", "undefined", "Overfull"):
        assert fault not in log, fault

"""The LaTeX sample: every figure and table is in it, and two sheets hold them."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from ffpa.record.store import PAPER_FOLDER, REPOSITORY
from ffpa.report.latex import CLASS, escape, shared_meanings, without, write_sample
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


def test_what_several_captions_say_of_a_name_is_said_once(sample: Path, built: Path) -> None:
    captions = ["GPU; B=1; a: slow", "GPU; B=1; a: slow; b: fast"]
    assert shared_meanings(captions) == ["a: slow"]
    assert without(captions[1], ["GPU", "a: slow"]) == "B=1; b: fast"
    assert without("GPU; medians", ["GPU"]) == "Medians"
    told = [entry["caption"] for entry in json.loads((built / "figures.json").read_text())]
    (meaning,) = {part for text in told for part in text.split("; ") if "storing S:" in part}
    assert sample.read_text().count(escape(meaning)) == 1


def test_figures_keep_their_size_and_no_type_is_below_6_points(sample: Path) -> None:
    text = sample.read_text()
    pictures = re.findall(r"\\includegraphics\[(.*?)\]", text)
    assert pictures and set(pictures) == {r"width=\columnwidth"}
    assert r"\c_sheets_figure_dim {85mm}" in CLASS.read_text()
    sizes = re.findall(r"\\fontsize\{([\d.]+)\}", CLASS.read_text())
    assert sizes and min(map(float, sizes)) >= 6
    body = text[text.index(r"\begin{document}") :]
    for shrunk in (r"\tiny", "resizebox", "scalebox"):
        assert shrunk not in body + CLASS.read_text(), shrunk


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


needs_tex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")


def compiled(source: Path) -> tuple[int, str]:
    """The exit status of the last run, and its log, with lines as long as they are."""
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", source.name]
    for _ in range(2):  # the second time for the references
        environment = os.environ | {"max_print_line": "10000"}
        done = subprocess.run(command, cwd=source.parent, capture_output=True, env=environment)
    return done.returncode, source.with_suffix(".log").read_text(errors="replace")


def overfull(log: str) -> list[float]:
    """By how many points anything is too wide or too high."""
    return [float(points) for points in re.findall(r"Overfull \\[hv]box \(([\d.]+)pt too", log)]


def on_sheets(source: Path) -> dict[str, str]:
    """The sheet of each figure and table that was set."""
    labels = r"\\newlabel\{(?:fig|tab):(\w+)\}\{\{\d+\}\{(\d+)\}"
    return dict(re.findall(labels, source.with_suffix(".aux").read_text()))


@needs_tex
@pytest.mark.parametrize("rows", ["made up", "recorded"])
def test_two_sheets_hold_every_figure_and_table(
    rows: str, sample: Path, built: Path, tmp_path: Path
) -> None:
    figures = built
    if rows == "recorded":
        figures = OUT
        sample = write_sample(Results.load(PAPER_FOLDER), OUT, tmp_path)
    status, log = compiled(sample)
    assert status == 0, log[-2000:]
    assert "Output written on sample.pdf (2 pages" in log
    for fault in ("Missing character", "undefined"):
        assert fault not in log, fault
    assert max(overfull(log), default=0) < 3
    placed = on_sheets(sample)
    assert placed.keys() == manifest(figures) | {"claims"}
    assert set(placed.values()) == {"1", "2"}


@needs_tex
def test_more_than_two_sheets_hold_is_an_error(sample: Path, tmp_path: Path) -> None:
    text = sample.read_text()
    start, end = text.index(r"\begin{figure}"), text.index(r"\begin{table*}")
    doubled = text[:end] + text[start:end] + text[end:]
    folder = re.search(r"\\graphicspath\{\{(.*?)/\}\}", text)
    assert folder
    there = str((sample.parent / folder[1]).resolve())
    (tmp_path / "sample.tex").write_text(doubled.replace(folder[1], there))
    shutil.copy(CLASS, tmp_path)
    status, log = compiled(tmp_path / "sample.tex")
    assert status != 0 and "The floats do not fit two sheets" in log


@needs_tex
def test_another_class_takes_a_change_of_one_line(sample: Path) -> None:
    text = sample.read_text()
    assert text.count(r"\documentclass{sheets}") == 1
    venue = sample.with_name("venue.tex")
    venue.write_text(text.replace("{sheets}", "[twocolumn]{article}"))
    status, log = compiled(venue)
    assert status == 0, log[-2000:]
    assert on_sheets(venue).keys() == {*included(text), "claims"}

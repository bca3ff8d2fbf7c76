"""Figures and tables: equal bytes on every rebuild, gaps, notes, and the committed set."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic
from matplotlib.colors import to_rgb

from ffpa.record.store import REPOSITORY
from ffpa.report.names import EFFICIENT, Contestant
from ffpa.report.results import PAPER_FOLDER, Results
from ffpa.report.tables import headdim_panel, headdim_table, resource_table, to_tex
from paper_figures import headdim, style
from paper_figures.build import OUT, SHEETS, SUMS, build_all, toolkit

PICTURES = ("headdim_speedup_f16", "headdim_speedup_f32", "headdim_tflops")
TABLES = ("headdim_table", "build_table")
LADDER_PICTURES = ("ladder", "bank_conflicts")
LADDER_TABLES = ("ladder_table",)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = synthetic.headdim_rows() + synthetic.ladder_rows()
    return synthetic.write(tmp_path_factory.mktemp("results") / "gpu", rows)


@pytest.fixture(scope="module")
def results(recorded: Path) -> Results:
    return Results.load(recorded, synthetic.SOURCES)


@pytest.fixture(scope="module")
def built(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    assert build_all(results, out) == ([sheet.name for sheet in SHEETS], [])
    return out


def rebuild(recorded: Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "paper_figures", "--results", str(recorded), "--out", str(out)]
    return subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | environment, capture_output=True, text=True
    )


def sums(out: Path) -> dict[str, str]:
    lines = (out / SUMS).read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines[1:])}


def test_every_sheet_comes_in_every_format(built: Path) -> None:
    pictures, tables = PICTURES + LADDER_PICTURES, TABLES + LADDER_TABLES
    expected = {f"{name}.{suffix}" for name in pictures for suffix in ("pdf", "svg", "png", "csv")}
    expected |= {f"{name}.{suffix}" for name in tables for suffix in ("tex", "md", "csv")}
    assert {path.name for path in built.iterdir()} == expected | {"figures.json", SUMS}


def test_other_processes_dates_and_settings_give_the_same_bytes(
    recorded: Path, tmp_path: Path
) -> None:
    # Another hash seed, clock, locale and matplotlibrc: what used to change PDF and SVG.
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: yellow\nxtick.major.size: 9\n")
    variants: tuple[dict[str, str], ...] = (
        {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"},
        {"PYTHONHASHSEED": "2", "MATPLOTLIBRC": str(tmp_path), "LC_ALL": "C"},
    )
    digests = []
    for number, environment in enumerate(variants):
        out = tmp_path / str(number)
        outcome = rebuild(recorded, out, **environment)
        assert outcome.returncode == 0, outcome.stderr
        digests.append(sums(out))
    assert digests[0] == digests[1]
    pictures, tables = PICTURES + LADDER_PICTURES, TABLES + LADDER_TABLES
    assert len(digests[0]) == 4 * len(pictures) + 3 * len(tables) + 1


def test_sums_are_those_of_the_files(built: Path) -> None:
    for name, digest in sums(built).items():
        assert hashlib.sha256((built / name).read_bytes()).hexdigest() == digest


def test_committed_figures_are_those_of_the_recorded_rows(tmp_path: Path) -> None:
    results = Results.load(PAPER_FOLDER)
    if "headdim" not in results.experiments:
        assert not (OUT / SUMS).exists(), "figures without rows: nothing can have made them"
        return
    names, missing = build_all(results, tmp_path)
    assert names == [sheet.name for sheet in SHEETS] and not missing
    committed = sums(OUT)
    for path in OUT.iterdir():
        if path.name != SUMS:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == committed[path.name], path.name
    # Pixels are equal only where the drawing library is; the numbers behind them always are.
    same_toolkit = (OUT / SUMS).read_text().splitlines()[0] == f"# {toolkit()}"
    compared = {
        name
        for name in committed
        if same_toolkit or Path(name).suffix not in (".pdf", ".svg", ".png")
    }
    rebuilt = sums(tmp_path)
    changed = sorted(name for name in compared if rebuilt.get(name) != committed[name])
    assert not changed, f"out of date: {', '.join(changed)}; run `nox -s figures`"


def test_pdf_has_truetype_fonts_column_width_and_no_dates(built: Path) -> None:
    for name in PICTURES:
        content = (built / f"{name}.pdf").read_bytes()
        assert b"/Type3" not in content and b"/FontFile2" in content
        assert b"DejaVuSans" in content
        assert b"/MediaBox [ 0 0 239.76 " in content  # 3.33 inches of 72 points
        assert b"CreationDate" not in content and b"Producer" not in content


def test_svg_needs_nothing_from_outside(built: Path) -> None:
    for name in PICTURES:
        text = (built / f"{name}.svg").read_text()
        assert "<dc:date>" not in text and "<image" not in text and "font-face" not in text


def test_points_that_count_for_nothing_are_gaps_with_a_mark(results: Results) -> None:
    panel = headdim_panel(results.frame("headdim"))
    with style.styled():
        figure = headdim._draw(results, panel, "tflops", "TFLOP/s", None, [])
    main, strip = figure.axes
    sm90 = next(line for line in main.lines if line.get_label() == "split_d-sm90 F32")
    values = dict(zip(*sm90.get_data(), strict=True))
    assert values[640] != values[640]  # NaN: a wrong result breaks the line
    assert values[576] > 0 and values[704] > 0
    assert "SDPA flash" not in [line.get_label() for line in main.lines]
    marks = {(text.get_position()[0], text.get_text()) for text in strip.texts}
    assert {(640, "W"), (832, "M"), (576, "×")} <= marks
    labels = [label.get_text() for label in strip.get_yticklabels()]
    assert labels == ["split_d-sm90 F32", "ffpa-attn", "SDPA flash", "SDPA math"]


def test_a_point_that_was_not_tried_breaks_the_line(results: Results) -> None:
    panel = headdim_panel(results.frame("headdim"))
    untried = (panel["headdim"] == 448) & (panel["kernel"] == "sdpa-efficient")
    with style.styled():
        figure = headdim._draw(results, panel[~untried], "tflops", "TFLOP/s", None, [])
    line = next(line for line in figure.axes[0].lines if line.get_label() == EFFICIENT.label)
    values = dict(zip(*line.get_data(), strict=True))
    assert values[448] != values[448] and values[384] > 0


def test_captions_name_device_shape_marks_and_the_other_architecture(built: Path) -> None:
    captions = {
        entry["name"]: entry["caption"]
        for entry in json.loads((built / "figures.json").read_text())
    }
    for name in PICTURES:
        assert "Test GPU; B=1 H=32 N=8192 fp16" in captions[name]
        assert "† sm_80 kernel compiled for sm_90" in captions[name]
        assert "STALE" not in captions[name]
    assert "W wrong result" in captions["headdim_tflops"]
    assert "could run at no D: SDPA flash" in captions["headdim_table"]


def test_rows_of_other_sources_are_called_stale_in_the_picture(
    recorded: Path, built: Path, tmp_path: Path
) -> None:
    build_all(Results.load(recorded, synthetic.OTHER_SOURCES), tmp_path)
    for entry in json.loads((tmp_path / "figures.json").read_text()):
        if entry["name"] not in ("build_table", "bank_conflicts"):
            assert "STALE, recorded with other kernel sources" in entry["caption"]
    for name in PICTURES:
        assert (tmp_path / f"{name}.png").read_bytes() != (built / f"{name}.png").read_bytes()


def test_table_gives_rates_speedups_and_gaps(results: Results) -> None:
    table = headdim_table(results.frame("headdim")).set_index("D")
    assert table.loc[640, "split_d-sm90 F32"] == "–"
    assert table.loc[576, "ffpa-attn"] == "–" and table.loc[512, "ffpa-attn"] != "–"
    assert "SDPA flash" not in table.columns
    rate, speedup = table.loc[576, "split_d-sm80 F16"].rstrip(")").split(" (")
    assert float(rate) == pytest.approx(220, rel=0.02)
    assert float(speedup) == pytest.approx(220 / 130, rel=0.02)
    assert "(" not in table.loc[576, "SDPA EA"]


def test_tex_is_booktabs_and_escaped(results: Results) -> None:
    text = to_tex(headdim_table(results.frame("headdim")))
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    assert r"split\_d-sm80 F16" in text and "split_d" not in text
    assert "–" not in text and " -- " in text


def test_build_table_shows_registers_and_spills_of_the_devices_code(results: Results) -> None:
    table = resource_table(results, results.frame("headdim")).set_index("D")
    assert table.loc[320, "split_d-sm80 F32"] == "168"
    assert table.loc[1024, "split_d-sm80 F32"] == "255 + 16 B"  # the sm_80 code does not spill


def test_without_rows_the_command_says_what_records_them(tmp_path: Path) -> None:
    outcome = rebuild(tmp_path / "nothing", tmp_path / "out")
    assert outcome.returncode == 1
    assert "nox -s bench -- experiment=headdim" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert not list((tmp_path / "out").glob("*.png"))


def test_what_the_rows_do_not_allow_is_left_out_by_name(tmp_path: Path) -> None:
    rows = [row for row in synthetic.headdim_rows() if row.acc != "f16"] + synthetic.ladder_rows()
    folder = synthetic.write(tmp_path / "gpu", rows)
    names, missing = build_all(Results.load(folder, synthetic.SOURCES), tmp_path / "out")
    assert "headdim_speedup_f16" not in names and "headdim_speedup_f32" in names
    assert len(missing) == 1 and missing[0].startswith("headdim_speedup_f16: ")


def test_files_that_are_no_longer_made_go_and_strangers_stay(
    results: Results, tmp_path: Path
) -> None:
    build_all(results, tmp_path)
    (tmp_path / "old.pdf").touch()
    (tmp_path / "notes.txt").touch()
    with (tmp_path / SUMS).open("a") as file:
        file.write(f"{'0' * 64}  old.pdf\n")
    build_all(results, tmp_path)
    assert not (tmp_path / "old.pdf").exists() and (tmp_path / "notes.txt").exists()
    assert "old.pdf" not in sums(tmp_path)


def test_contestants_look_different_and_always_the_same() -> None:
    known = [Contestant(kernel, acc) for kernel, acc in style._APPEARANCE]
    looks = {(look["color"], look["marker"]) for look in map(style.appearance, known)}
    assert len(looks) == len(known)
    brightness = [sum(to_rgb(style.appearance(one)["color"])) for one in known]
    assert max(brightness) < 2.3  # dark enough for white paper
    stranger = Contestant("somebody-else")
    assert style.appearance(stranger) == style.appearance(Contestant("somebody-else"))


def test_throttled_points_are_hollow_and_unpaired_ones_a_gap(tmp_path: Path) -> None:
    rows = [
        synthetic.row("sdpa-efficient", None, 512, 130.0),
        synthetic.row("split_d-sm80", "f16", 512, 200.0, status="throttled", reason="11 % lost"),
        synthetic.row("split_d-sm80", "f16", 576, 200.0),
    ]
    folder = synthetic.write(tmp_path / "gpu", rows)
    results = Results.load(folder, synthetic.SOURCES)
    panel = headdim_panel(results.frame("headdim"), lambda one: one.acc == "f16")
    notes = headdim._notes(results, panel, "speedup")
    assert "– nothing to compare with in the same run" in notes
    assert any(note.startswith("hollow: ") for note in notes)
    with style.styled():
        figure = headdim._draw(results, panel, "speedup", "speed-up", 1.0, notes)
    main, strip = figure.axes
    hollow = [line for line in main.lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow] == [[512]]
    assert [(text.get_position()[0], text.get_text()) for text in strip.texts] == [(576, "–")]

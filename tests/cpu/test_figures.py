"""Figures and tables: equal bytes on every rebuild, gaps, notes, and the committed set."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import synthetic
from matplotlib.colors import to_rgb

from ffpa.record.store import PAPER_FOLDER, REPOSITORY
from ffpa.report.names import EFFICIENT, Contestant
from ffpa.report.results import Results
from ffpa.report.tables import headdim_panel, headdim_table, resource_table, to_tex
from paper_figures import accuracy, headdim, scenarios, style
from paper_figures.build import OUT, SHEETS, SUMS, build_all, toolkit
from paper_figures.parts import notes_of

HEADDIM_PICTURES = ("headdim_speedup_f16", "headdim_speedup_f32", "headdim_tflops")
PICTURES = (*HEADDIM_PICTURES, "peers", "accumulation", "accuracy", "seqlen", "scenarios",
            "ablation", "roofline", "ladder", "bank_conflicts")  # fmt: skip
MEASURED = tuple(name for name in PICTURES if name != "bank_conflicts")
TABLES = ("headdim_table", "build_table", "dtypes_table", "causal_table", "peers_table",
          "accumulation_table", "scenarios_table", "ablation_table", "roofline_table",
          "profile_table", "ladder_table")  # fmt: skip


def rebuild(recorded: Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "paper_figures", "--results", str(recorded), "--out", str(out)]
    return subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | environment, capture_output=True, text=True
    )


def sums(out: Path) -> dict[str, str]:
    lines = (out / SUMS).read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines[1:])}


def test_every_figure_of_the_paper_is_among_them(built: Path) -> None:
    names = {entry["name"] for entry in json.loads((built / "figures.json").read_text())}
    assert {*PICTURES, *TABLES} <= names


def test_every_sheet_comes_in_every_format(built: Path) -> None:
    entries = json.loads((built / "figures.json").read_text())
    formats = {entry["name"]: {Path(name).suffix for name in entry["files"]} for entry in entries}
    for name, suffixes in formats.items():
        picture = suffixes & {".pdf", ".svg", ".png"}
        assert picture in (set(), {".pdf", ".svg", ".png"}), name
        assert picture or {".tex", ".md", ".csv"} <= suffixes, name
    assert all({".pdf", ".csv"} <= formats[name] for name in PICTURES)
    assert all(".tex" in formats[name] for name in TABLES)
    listed = {name for entry in entries for name in entry["files"]}
    assert {path.name for path in built.iterdir()} == listed | {"figures.json", SUMS}


def test_another_process_date_and_setting_gives_the_same_bytes(
    recorded: Path, tmp_path: Path
) -> None:
    # F01, F02. Another hash seed, clock, locale and matplotlibrc: what used to change PDF and SVG.
    (tmp_path / "matplotlibrc").write_text("axes.facecolor: yellow\nxtick.major.size: 9\n")
    outcome = rebuild(
        recorded, tmp_path / "out",
        PYTHONHASHSEED="2", TZ="Asia/Tokyo", LC_ALL="C", MATPLOTLIBRC=str(tmp_path),
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    digests = sums(tmp_path / "out")
    build_all(Results.load(recorded), tmp_path / "here")
    assert digests == sums(tmp_path / "here")
    assert len(digests) >= 4 * len(PICTURES) + 3 * len(TABLES) + 1


def test_sums_are_those_of_the_files(built: Path) -> None:
    for name, digest in sums(built).items():
        assert hashlib.sha256((built / name).read_bytes()).hexdigest() == digest


def test_committed_figures_are_those_of_the_recorded_rows(tmp_path: Path) -> None:
    results = Results.load(PAPER_FOLDER)
    if "headdim" not in results.experiments:
        assert not (OUT / SUMS).exists(), "figures without rows: nothing can have made them"
        return
    names, faults, unrecorded = build_all(results, tmp_path)
    assert not faults
    for sheet in SHEETS:
        missing = any(sheet.name in line.split(": ")[0].split(", ") for line in unrecorded)
        assert (sheet.name in names) != missing
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
    for name in MEASURED:
        assert "Test GPU; " in captions[name]
    for name in HEADDIM_PICTURES:
        assert "Test GPU; B=1 H=32 N=8192 fp16" in captions[name]
        assert "† sm_80 kernel compiled for sm_90" in captions[name]
        assert "STALE" not in captions[name]
    assert "W wrong result" in captions["headdim_tflops"]
    assert "could run at no D: SDPA flash" in captions["headdim_table"]
    assert "95 % interval, 1 process" in captions["headdim_tflops"]


def test_captions_tell_how_many_processes_stand_behind_the_points(tmp_path: Path) -> None:
    rows = [
        synthetic.row(kernel, acc, dim, 200.0, process=process)
        for kernel, acc in (("sdpa-efficient", None), ("split_d-sm80", "f16"))
        for dim in (320, 384)
        for process in (1, 2, 3)
        if (dim, process) != (384, 3)
    ]
    results = Results.load(synthetic.write(tmp_path / "gpu", rows), synthetic.SOURCES)
    panel = headdim_panel(results.frame("headdim"))
    assert "interval, 2 to 3 processes" in notes_of(results, panel, "tflops", "B=1")[0]


def test_rows_of_other_sources_are_called_stale_in_pictures_and_tables(
    recorded: Path, built: Path, tmp_path: Path
) -> None:
    build_all(Results.load(recorded, synthetic.OTHER_SOURCES), tmp_path)
    timed_tables = set(TABLES) - {"build_table", "profile_table"}
    for entry in json.loads((tmp_path / "figures.json").read_text()):
        if entry["name"] in {*MEASURED, *timed_tables}:
            assert "STALE, recorded with other kernel sources" in entry["caption"]
        if entry["name"] == "profile_table":
            assert "STALE, of other kernel sources" in entry["caption"]
    for name in MEASURED:
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
    assert r"\shortstack{split\_d-sm80 \\ F16}" in text and "split_d" not in text
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
    rows = [row for row in synthetic.headdim_rows() if row.acc != "f16"]
    folder = synthetic.write(tmp_path / "gpu", rows)
    built = build_all(Results.load(folder, synthetic.SOURCES), tmp_path / "out")
    assert "headdim_speedup_f16" not in built.names and "headdim_speedup_f32" in built.names
    assert len(built.faults) == 1 and built.faults[0].startswith("headdim_speedup_f16: ")
    assert any(line.startswith("seqlen: no rows of experiment seqlen") for line in built.unrecorded)


def test_variants_that_the_device_cannot_run_are_no_fault(tmp_path: Path) -> None:
    rows = [
        synthetic.row("split_d-sm80", "f32", 512, rate, variant=variant, experiment="variants")
        for variant, rate in (("", 300.0), ("smem99", None))
    ]
    folder = synthetic.write(tmp_path / "gpu", rows)
    built = build_all(Results.load(folder, synthetic.SOURCES), tmp_path / "out")
    assert not built.faults and "variants_table" not in built.names
    assert any(line.startswith("variants_table: ") and "sm_80" in line for line in built.unrecorded)


def test_files_that_are_no_longer_made_go_and_strangers_stay(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "gpu", synthetic.headdim_rows())
    results = Results.load(folder, synthetic.SOURCES)
    out = tmp_path / "out"
    build_all(results, out)
    (out / "old.pdf").touch()
    (out / "notes.txt").touch()
    with (out / SUMS).open("a") as file:
        file.write(f"{'0' * 64}  old.pdf\n")
    build_all(results, out)
    assert not (out / "old.pdf").exists() and (out / "notes.txt").exists()
    assert "old.pdf" not in sums(out)


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
    notes = notes_of(results, panel, "speedup", "B=1")
    assert "– nothing to compare with in the same run" in notes
    assert any(note.startswith("hollow: ") for note in notes)
    with style.styled():
        figure = headdim._draw(results, panel, "speedup", "speed-up", 1.0, notes)
    main, strip = figure.axes
    hollow = [line for line in main.lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow] == [[512]]
    assert [(text.get_position()[0], text.get_text()) for text in strip.texts] == [(576, "–")]


def test_times_that_hold_the_hosts_own_are_named_under_the_figure(tmp_path: Path) -> None:
    rows = [
        synthetic.row("sdpa-efficient", None, 512, 130.0, late=1),  # of twenty
        synthetic.row("flash-attn-4", None, 512, 200.0, late=20),
    ]
    results = Results.load(synthetic.write(tmp_path / "gpu", rows), synthetic.SOURCES)
    notes = notes_of(results, headdim_panel(results.frame("headdim")), "tflops", "B=1")
    assert "with the host's own time: flash-attn 4" in notes


def captions_and_data(built: Path, name: str) -> tuple[str, pd.DataFrame]:
    entries = json.loads((built / "figures.json").read_text())
    (caption,) = [entry["caption"] for entry in entries if entry["name"] == name]
    return caption, pd.read_csv(built / f"{name}.csv")


def test_overflow_is_where_the_largest_scaled_score_passes_the_largest_f16_number() -> None:
    scale = accuracy.overflow_scale(4 * 8192**2)
    assert 90 < scale < 110
    assert accuracy.overflow_scale(8192**2) > scale  # fewer scores, smaller extremes


def test_errors_that_are_no_numbers_are_marked_wrong(built: Path) -> None:
    caption, data = captions_and_data(built, "accuracy")
    assert "× cannot run; W wrong result" in caption
    dims = ", ".join(str(dim) for dim in sorted(data["headdim"].unique()))
    assert f"measured at D = {dims} only" in caption
    lost = data[(data["input_scale"] == 256) & (data["acc"] == "f16")]
    assert len(lost) and lost["err_rel"].isna().all()


def test_stalling_is_told_by_mean_and_length_and_a_refusal_as_such(built: Path) -> None:
    caption, _ = captions_and_data(built, "stalls_table")
    table = pd.read_csv(built / "stalls_table.csv", dtype=str)
    assert list(table.columns[:3]) == ["D", "mean of V", "N"]
    assert list(table.iloc[1][:3]) == ["64", "1", "65536"] and len(table) == 8
    lengths = table.set_index("N").loc[["1024", "65536"]]
    for label, short, long in (
        ("split_d-sm80 F16", "3.0e-04", "5.0e-01 (wrong result)"),
        ("split_d-sm80 F32", "2.3e-04", "2.3e-04"),
        ("split_d-sm90 F16", "3.0e-04", "refused"),
    ):
        assert list(lengths[label]) == [short] * 4 + [long] * 4
    assert "refused: refuses" in caption
    assert "could run nowhere: split_d-sm90 F16F32" in caption


def test_scenarios_are_called_by_their_files_and_strangers_by_their_sizes(built: Path) -> None:
    _, data = captions_and_data(built, "scenarios")
    strangers = {"D=512 B=3 H=32 N=8192 fp16"}
    assert set(data["scenario"]) == {"gemma4-8-4", "vae-64x64"} | strangers
    assert len(scenarios.names()) >= 10
    table = (built / "scenarios_table.md").read_text()
    assert " (5.60) |" in table
    assert "could run none: SDPA cuDNN" in captions_and_data(built, "scenarios_table")[0]


def test_the_ablation_starts_with_what_ships_and_shows_what_could_not_run(built: Path) -> None:
    _, data = captions_and_data(built, "ablation")
    assert list(data["choice"]) == [
        *("as shipped, D = 512", "stages3", "padding", "stages1", "warps4x2"),
        *("as shipped, D = 64", "q_smem"),
    ]
    table = pd.read_csv(built / "ablation_table.csv", dtype=str).set_index("configuration")
    assert float(table.loc["stages1", "of shipped"]) == pytest.approx(198 / 314, abs=0.02)
    assert table.loc["warps4x2", "TFLOP/s"] == "–"
    # Each is compared with what ships at its own D.
    assert float(table.loc["q_smem", "of shipped"]) == pytest.approx(300 / 316, abs=0.02)


def test_the_roofline_is_relative_to_the_unfused_products_of_the_same_run(built: Path) -> None:
    caption, data = captions_and_data(built, "roofline")
    assert "naive" not in set(data["kernel"])
    ours = data[(data["kernel"] == "split_d-sm90") & (data["acc"] == "f32")]
    assert ours["of_unfused"].between(0.85, 0.97).all()
    assert "hollow: share of cycles" in caption
    assert "S goes through memory: a fused kernel may pass it" in caption
    assert "square matmul: one product" in caption
    table = pd.read_csv(built / "roofline_table.csv", dtype=str).set_index("D")
    assert re.fullmatch(r"\d+ \(0\.4\d\), 255 \+ 16 B", table.loc["1024", "split_d-sm80 F32"])
    assert table.loc["512", "split_d-sm80 F32"].endswith(", 168, 1 KiB")  # the profile tells
    assert float(table.loc["512", "matmuls storing S"]) == pytest.approx(690, rel=0.02)
    assert float(table.loc["512", "square matmul"]) == pytest.approx(720, rel=0.02)


@pytest.mark.parametrize("name", ["headdim_tflops", "headdim_table", "peers", "dtypes_table"])
def test_captions_say_that_the_products_beside_the_kernels_are_not_fused(
    built: Path, name: str
) -> None:
    (entry,) = [one for one in json.loads((built / "figures.json").read_text())
                if one["name"] == name]  # fmt: skip
    assert "matmuls storing S: both products" in entry["caption"]
    assert "a fused kernel may pass it" in entry["caption"]


def test_the_profile_names_the_longest_stalls_but_not_issuing(built: Path) -> None:
    table = (built / "profile_table.md").read_text()
    assert "wait 60%" in table and "selected" not in table and "0.00 / 0.75 %" in table
    caption = captions_and_data(built, "profile_table")[0]
    assert "of loads / of stores" in caption and "D = 512 only" in caption


def test_the_dtypes_have_columns_of_their_own(built: Path) -> None:
    table = pd.read_csv(built / "dtypes_table.csv", index_col="D", dtype=str)
    assert list(table) == [
        f"{name} {dtype}"
        for name in ("SDPA EA", "split_d-sm90 F32", "SDPA cuDNN", "matmuls storing S")
        for dtype in ("fp16", "bf16")
    ]
    fp16, bf16 = (table[f"split_d-sm90 F32 {dtype}"] for dtype in ("fp16", "bf16"))
    rates = [column.str.split(" ").str[0].astype(float) for column in (fp16, bf16)]
    assert rates[0].between(480, 520).all() and rates[1].between(530, 570).all()
    assert table["SDPA cuDNN bf16"].eq("–").sum() == 12


def test_causal_rates_are_told_as_shares_by_length(built: Path) -> None:
    table = pd.read_csv(built / "causal_table.csv", index_col="D", dtype=str)
    assert list(table) == [
        f"{kernel} {acc} {length}"
        for kernel in ("split_d-sm80", "split_d-sm90")
        for acc in ("F16", "F32")
        for length in (8192, 16384)
    ]
    shares = {
        length: table[f"split_d-sm90 F32 {length}"].str.extract(r"\((\d+)%\)")[0].astype(float)
        for length in (8192, 16384)
    }
    assert shares[8192].between(78, 82).all() and shares[16384].dropna().between(88, 92).all()
    assert table["split_d-sm90 F32 16384"].eq("–").sum() == 8


def test_rows_in_bf16_change_nothing_in_the_headline(tmp_path: Path) -> None:
    fp16 = synthetic.headdim_rows()
    bf16 = [row.model_copy(update={"dtype": "bf16", "run_id": "other"}) for row in fp16]
    for name, rows in (("plain", fp16), ("mixed", [*fp16, *bf16])):
        folder = synthetic.write(tmp_path / name / "gpu", rows)
        build_all(Results.load(folder, synthetic.SOURCES), tmp_path / name / "out")
    for name in (*HEADDIM_PICTURES, "headdim_table"):
        plain, mixed = (tmp_path / kind / "out" / f"{name}.csv" for kind in ("plain", "mixed"))
        assert plain.read_bytes() == mixed.read_bytes()


def test_lengths_at_which_nobody_ran_are_marked(built: Path) -> None:
    caption, data = captions_and_data(built, "seqlen")
    assert "could run nowhere: SDPA flash" in caption and "× cannot run" in caption
    assert set(data["seqlen_q"]) == {2**power for power in range(9, 16)}

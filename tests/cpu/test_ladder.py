"""The ladder's order, table, histogram, layouts and demo."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import synthetic

from ffpa.measure.contestants import contestants_of
from ffpa.record.profile import save_profiles
from ffpa.record.store import REPOSITORY
from ffpa.report import readme
from ffpa.report.ladder import ladder_caption, ladder_panel, ladder_table, rung_label
from ffpa.report.names import Contestant
from ffpa.report.profiles import profile_table, steps_caption, steps_profile
from ffpa.report.readme import ladder_profile_block
from ffpa.report.results import NoRowsError, Results
from ffpa.settings import MeasureSettings, Settings
from ffpa.support import AUTO_ORDER
from ffpa_build import manifest
from paper_figures import bank_conflicts, ladder, style

STEPS = {i.id: i for i in manifest.load(REPOSITORY) if i.id.startswith("ladder-")}


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = synthetic.write(tmp_path_factory.mktemp("rows") / "gpu", synthetic.ladder_rows())
    return ladder_panel(Results.load(folder, synthetic.SOURCES))


def test_steps_are_numbered_without_gaps_and_auto_takes_none() -> None:
    assert [int(name.split("-")[1]) for name in STEPS] == list(range(1, len(STEPS) + 1))
    assert not set(STEPS) & set(AUTO_ORDER)


def test_each_step_opens_with_idea_gain_and_limit() -> None:
    for instance in STEPS.values():
        text = (REPOSITORY / "csrc" / instance.header).read_text()
        opening = text[: text.index("#pragma once")]
        words = [line.split()[1] for line in opening.splitlines() if line[3:4].isupper()]
        assert words == ["Idea", "Expected", "Brought", "Limit"], instance.header
        assert f"// {instance.id}: " in opening


def test_the_first_step_uses_no_primitives() -> None:
    text = (REPOSITORY / "csrc" / STEPS["ladder-1-base"].header).read_text()
    assert '#include "prim/' not in text and '#include "tile/' not in text


def test_shipped_leaves_the_ladder_out_and_ladder_holds_it() -> None:
    compiled = ["naive", *STEPS, "split_d-sm80", "split_d-sm90"]
    quiet = MeasureSettings(ceiling=False)

    def named(**kernels: bool) -> list[str]:
        settings = Settings(acc={"f32": True}, kernels=dict(kernels), measure=quiet)
        return [one.kernel for one in contestants_of(settings, compiled)]

    assert named(shipped=True) == ["split_d-sm80", "split_d-sm90"]
    assert named(ladder=True) == list(STEPS)


def test_rungs_come_in_their_order_not_that_of_their_names(panel: pd.DataFrame) -> None:
    assert list(panel["rung"].drop_duplicates()) == [
        "0 official (SDPA flash)",
        "1 base",
        "2 async copy",
        "3 eager loads",
        "10 ring",
        "Hopper: split_d-sm90",
        "flash-attn 4",
        "SDPA cuDNN",
    ]
    assert rung_label(Contestant("naive", "f32")) == "naive F32"


def test_percent_is_of_the_official_kernel_in_the_same_rounds(panel: pd.DataFrame) -> None:
    base = panel[panel["kernel"] == "ladder-1-base"]
    assert base["percent"].tolist() == pytest.approx([50.0] * 4, rel=0.02)
    official = panel[panel["kernel"] == "sdpa-flash"]
    assert (official["percent"] == 100).all()


def test_table_gives_percent_time_and_rate_and_both_counts(panel: pd.DataFrame) -> None:
    table = ladder_table(panel).set_index("kernel")
    percent, cost = table.loc["1 base", "8192"].rstrip(")").split(" (")
    assert float(percent) == pytest.approx(50, rel=0.02)
    milliseconds, rate = cost.split(" ms, ")
    assert float(milliseconds) == pytest.approx(4 * 16 * 32 * 8192**2 * 128 / 160e9, rel=0.02)
    assert float(rate) == pytest.approx(160, rel=0.02)
    halves = float(table.loc["– counted as 2·B·H·N²·D", "1024"])
    assert halves == pytest.approx(160, rel=0.02)
    assert table.loc["3 eager loads", "2048"] == "–"  # a wrong result
    assert (table.loc["flash-attn 4"] == "–").all()


def test_caption_says_who_could_not_run_and_what_is_stale(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "gpu", synthetic.ladder_rows())
    results = Results.load(folder, synthetic.OTHER_SOURCES)
    caption = ladder_caption(results, ladder_panel(results))
    assert "could not run: flash-attn 4" in caption
    assert "STALE" in caption and "ladder-1-base F32" in caption


def test_without_the_official_kernel_there_is_no_ladder(tmp_path: Path) -> None:
    rows = [row for row in synthetic.ladder_rows() if row.kernel != "sdpa-flash"]
    results = Results.load(synthetic.write(tmp_path / "gpu", rows), synthetic.SOURCES)
    with pytest.raises(NoRowsError, match="experiment=ladder"):
        ladder_panel(results)


def test_histogram_has_a_bar_for_every_rung_and_length_that_counts(
    panel: pd.DataFrame, tmp_path: Path
) -> None:
    folder = synthetic.write(tmp_path / "gpu", synthetic.ladder_rows())
    with style.styled():
        figure = ladder.draw(Results.load(folder, synthetic.SOURCES), panel)
    axes = figure.axes[0]
    assert len(axes.patches) == 4 * 6 - 1  # six rungs run, one of them wrong at one length
    assert [text.get_text() for text in axes.texts] == ["×"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "N=1024", "N=2048", "N=4096", "N=8192"
    ]  # fmt: skip


@pytest.mark.parametrize("chunk", range(16))
def test_conflicts_of_the_layouts(chunk: int) -> None:
    turns = [
        bank_conflicts.wavefronts(bank_conflicts.ldmatrix_reads(layout, chunk))
        for layout in bank_conflicts.LAYOUTS.values()
    ]
    assert turns == [8, 2, 1]


def test_layouts_give_every_chunk_a_place_of_its_own() -> None:
    for layout in bank_conflicts.LAYOUTS.values():
        places = {layout(row, chunk) for row in range(64) for chunk in range(16)}
        assert len(places) == 64 * 16


def test_a_row_is_written_without_conflicts_in_slices_and_swizzled() -> None:
    for layout in (bank_conflicts.slices, bank_conflicts.swizzled):
        assert bank_conflicts.wavefronts(layout(3, chunk) for chunk in range(8)) == 1


def test_the_pages_profile_has_a_line_for_every_step() -> None:
    lines = [line for line in ladder_profile_block().splitlines() if line.startswith("|")]
    assert re.match(r"\|\s+step \|\s+tensor ", lines[0])
    steps = [line.split("|")[1].split()[0] for line in lines[2:]]
    assert steps == [name.split("-")[1] for name in STEPS]


def profiled(folder: Path, *kernels: str, sources: str = synthetic.SOURCES) -> Path:
    """Results with counters of these kernels beside those of synthetic.profiles."""
    record = synthetic.profiles()
    one = record.profiles[0]
    size = {"batch": 4, "seqlen_q": 2048, "seqlen_k": 2048, "headdim": 128}
    stalls = {"short_scoreboard": 0.374, "selected": 0.626}
    steps = [one.model_copy(update={"kernel": name, "stalls": stalls, **size}) for name in kernels]
    synthetic.write(folder, [synthetic.row("naive", "f32", 512, 1.0)])
    update = {"profiles": [*record.profiles, *steps], "source_hash": sources}
    save_profiles(folder, record.model_copy(update=update))
    return folder


@pytest.mark.parametrize("sources", [synthetic.SOURCES, synthetic.OTHER_SOURCES])
def test_the_page_prefers_what_was_profiled(
    sources: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = profiled(tmp_path / "gpu", "ladder-10-ring", "ladder-4-swizzle", sources=sources)
    results = Results.load(folder, synthetic.SOURCES)
    table = steps_profile(results)
    assert table["step"].tolist() == ["4 swizzle", "10 ring"]
    assert table.loc[0].tolist()[1:] == [
        "61 %", "55 %", "0.3 %", "30 %", "5.1", "12.0", "short scoreboard 37 %"
    ]  # fmt: skip
    assert set(profile_table(results)["kernel"]) == {"split_d-sm80 F32", "split_d-sm90 F32"}
    monkeypatch.setattr(readme, "PAPER_FOLDER", folder)
    block = ladder_profile_block()
    assert "at [4, 2048, 32, 128]; Nsight Compute 1, one launch each" in block
    assert "notes" not in block and "4 swizzle" in block
    stale = "STALE" in steps_caption(results)
    assert stale == (sources != synthetic.SOURCES)


def test_without_profiled_steps_the_page_has_those_of_the_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readme, "PAPER_FOLDER", profiled(tmp_path / "gpu"))
    block = ladder_profile_block()
    assert "From [the notes]" in block and "not a recorded profile" in block
    noted = {line.split("|")[1].split()[0] for line in block.splitlines() if line.startswith("|")}
    assert {name.split("-")[1] for name in STEPS} < noted


def test_demo_without_a_gpu_prints_the_recorded_ladder_or_what_records_it() -> None:
    command = [sys.executable, str(REPOSITORY / "experiments/demo.py")]
    outcome = subprocess.run(
        command, env={"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True, text=True,
    )  # fmt: skip
    assert "no CUDA device: this is the ladder as recorded on" in outcome.stdout
    recorded = (REPOSITORY / "experiments/results/h200/ladder.jsonl").exists()
    assert outcome.returncode == (0 if recorded else 1)
    assert ("1 base" in outcome.stdout) if recorded else ("experiment=ladder" in outcome.stderr)

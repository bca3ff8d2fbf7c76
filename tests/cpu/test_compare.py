"""Two result files against each other."""

from pathlib import Path

import pytest
from synthetic import row

from ffpa.record import Row, append_rows
from ffpa.report.__main__ import main
from ffpa.report.compare import compare_files, comparison_table, verdict
from ffpa.report.statistics import Estimate


def kernel(tflops: float | None, headdim: int = 512, **fields: object) -> Row:
    return row("split_d-sm80", "f32", headdim, tflops, **fields)


def files(folder: Path, first: list[Row], second: list[Row]) -> tuple[Path, Path]:
    paths = folder / "first.jsonl", folder / "second.jsonl"
    for path, rows in zip(paths, (first, second), strict=True):
        append_rows(path, rows)
        path.touch()
    return paths


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.02, 1.20, "faster"),
        (0.80, 0.98, "slower"),
        (0.995, 1.005, "same"),
        (0.90, 1.10, "unclear"),
        (1.005, 1.05, "unclear"),
        (0.95, 0.995, "unclear"),
    ],
)
def test_verdicts(low: float, high: float, expected: str) -> None:
    assert verdict(Estimate((low + high) / 2, low, high, 20, 1)) == expected


def test_each_point_is_judged_by_itself(tmp_path: Path) -> None:
    pair = files(
        tmp_path,
        [kernel(100.0, 320), kernel(100.0, 384), kernel(100.0, 448)],
        [kernel(150.0, 320), kernel(60.0, 384), kernel(100.0, 448, process=2)],
    )
    comparisons, left_out = compare_files(*pair, margin=0.05)
    assert [entry.change for entry in comparisons] == ["faster", "slower", "same"]
    assert comparisons[0].ratio.value == pytest.approx(1.5, rel=0.03)
    assert not left_out


def test_a_difference_within_the_noise_is_unclear(tmp_path: Path) -> None:
    pair = files(tmp_path, [kernel(100.0)], [kernel(101.0)])
    (comparison,), _ = compare_files(*pair, margin=0.001)
    assert comparison.change == "unclear"


def test_the_same_rows_are_the_same_and_other_rows_of_their_median_are_not(tmp_path: Path) -> None:
    rows = [kernel(100.0, 320), kernel(None, 384)]
    (comparison,), _ = compare_files(*files(tmp_path, rows, rows), margin=0)
    assert comparison.change == "same"
    assert comparison.ratio[:3] == (1.0, 1.0, 1.0)
    other = tmp_path / "other"
    other.mkdir()
    (comparison,), _ = compare_files(*files(other, rows, [kernel(100.0, 320, process=2)]), margin=0)
    assert comparison.change == "unclear"


def test_what_cannot_be_compared_is_listed(tmp_path: Path) -> None:
    pair = files(tmp_path, [kernel(100.0), kernel(100.0, 576)], [kernel(None)])
    comparisons, left_out = compare_files(*pair)
    assert not comparisons
    assert "ok in the first file, unsupported in the second" in left_out[0]
    assert "D=576" in left_out[1] and "absent in the second" in left_out[1]


def test_command_prints_table_and_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = files(tmp_path, [kernel(100.0)], [kernel(150.0)])
    assert main(["compare", str(first), str(second)]) == 0
    output = capsys.readouterr().out
    assert "split_d-sm80 F32, D=512 B=1 H=32 N=8192 fp16" in output
    assert "1 faster, 0 slower, 0 same, 0 unclear, 0 not comparable" in output


def test_a_missing_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]) == 2
    assert "a.jsonl" in capsys.readouterr().err


def test_empty_comparison_has_no_lines(tmp_path: Path) -> None:
    comparisons, _ = compare_files(*files(tmp_path, [], []))
    assert comparison_table(comparisons).empty

"""Fixtures of the tests that need no GPU."""

from pathlib import Path

import pytest
import synthetic
from emulator import emulator  # noqa: F401

from ffpa.record.profile import save_profiles
from ffpa.report.results import Results
from paper_figures.build import SHEETS, build_all


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with rows of every experiment, and counters."""
    rows = synthetic.headdim_rows() + synthetic.other_rows() + synthetic.ladder_rows()
    folder = synthetic.write(tmp_path_factory.mktemp("results") / "gpu", rows)
    save_profiles(folder, synthetic.profiles())
    return folder


@pytest.fixture(scope="session")
def results(recorded: Path) -> Results:
    return Results.load(recorded, synthetic.SOURCES)


@pytest.fixture(scope="session")
def built(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every figure and table of these results; not to be written into."""
    out = tmp_path_factory.mktemp("out")
    built = build_all(results, out)
    wanted = [sheet.name for sheet in SHEETS if sheet.experiment in results.experiments]
    assert built.names == wanted and not built.faults
    return out

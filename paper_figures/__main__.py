"""Rebuild every figure and table: `python -m paper_figures`; see --help."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ffpa.record.store import PAPER_FOLDER
from ffpa.report.page import figures_folder
from ffpa.report.results import Results, recorded_folders

from .build import build_all


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m paper_figures", description=__doc__)
    parser.add_argument(
        "--results",
        type=Path,
        help="one folder of recorded rows; otherwise all: the paper's into paper_figures/out, "
        "those of other devices into site/figures/NAME",
    )
    parser.add_argument("--out", type=Path, help="where the files go; needs --results")
    options = parser.parse_args(arguments)
    if options.out and not options.results:
        parser.error("--out needs --results: say whose rows go there")
    if options.results:
        out = options.out or figures_folder(options.results)
        return _build(options.results, out, complete=True)
    # Other devices get what their rows allow; of the paper's, what was recorded has to be whole.
    status = _build(PAPER_FOLDER, figures_folder(PAPER_FOLDER), complete=True)
    for folder in recorded_folders():
        if folder != PAPER_FOLDER:
            status |= _build(folder, figures_folder(folder), complete=False)
    return status


def _build(folder: Path, out: Path, *, complete: bool) -> int:
    try:
        built = build_all(Results.load(folder), out)
    except ValueError as error:  # a damaged results file
        print(error, file=sys.stderr)
        return 1
    if built.names:
        print(f"{out}: {', '.join(built.names)}")
    if not complete:
        return 0
    print("\n".join([*built.faults, *built.unrecorded]), file=sys.stderr)
    return int(bool(built.faults) or not built.names)


if __name__ == "__main__":
    sys.exit(main())

"""What every figure and table of the paper gives to the builder, and what it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ffpa.report.results import Results
from ffpa.report.tables import to_markdown, to_tex


@dataclass(frozen=True)
class Sheet:
    """A figure or table: where its rows come from and how it is made.

    `build(results, frame, folder)` writes files named `name` with their suffixes into the folder
    and returns the caption. `frame` is results.frame(experiment).
    """

    name: str
    title: str
    experiment: str
    build: Callable[[Results, pd.DataFrame, Path], str]


def save_table(table: pd.DataFrame, folder: Path, name: str) -> None:
    """Write NAME.tex (booktabs), its Markdown twin and, for the report page, NAME.csv."""
    (folder / f"{name}.tex").write_text(to_tex(table))
    (folder / f"{name}.md").write_text(to_markdown(table))
    table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")

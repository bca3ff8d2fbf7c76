"""Where results live, and how rows get in and out of the files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from .row import Row


def _repository() -> Path:
    """The project's folder: this file's, or the current one where the package came as a wheel."""
    for folder in (Path(__file__).resolve().parents[3], Path.cwd(), *Path.cwd().parents):
        if (folder / "csrc" / "kernels.toml").exists():
            return folder
    return Path.cwd()


REPOSITORY = _repository()
CPU_SLUG = "cpu"
PAPER_FOLDER = REPOSITORY / "experiments" / "results" / "h200"  # the rows that the paper rests on
REPRODUCED = REPOSITORY / "reproduced"  # where nox -s reproduce puts a reviewer's


def results_dir() -> Path:
    """The folder that holds one folder per GPU: $FFPA_RESULTS, else experiments/results."""
    redirected = os.environ.get("FFPA_RESULTS")
    return Path(redirected).resolve() if redirected else REPOSITORY / "experiments" / "results"


def gpu_slug(name: str) -> str:
    """Folder name of a GPU: "NVIDIA H200" gives "h200"."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(word for word in words if word != "nvidia") or "unknown"


def results_path(root: Path, gpu: str, experiment: str) -> Path:
    """The JSON-lines file of an experiment on a GPU."""
    return root / gpu / f"{experiment}.jsonl"


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Append rows in one write, so that an interrupted run leaves whole lines only."""
    text = "".join(row.to_line() + "\n" for row in rows)
    if not text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def load_rows(path: Path) -> list[Row]:
    """All rows of a file, in file order.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line is not a valid row; names file, line and fault.
    """
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            rows.append(Row.from_line(line))
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"])) or "row"
            raise ValueError(
                f"{path.name}, line {number}: {where}: {fault['msg']}; remove the line, or "
                "record the experiment again"
            ) from error
    return rows

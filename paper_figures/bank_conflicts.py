"""Which thread reads which bank of shared memory: three layouts of a tile of 64 rows x 128 columns.

ldmatrix serves eight threads at a time, each of which gives the address of 16 bytes of a row: four
of the 32 banks. Threads that meet in a bank but not in the same bytes wait for each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ffpa.report.ladder import EXPERIMENT
from ffpa.report.results import Results

from . import style
from .sheet import Sheet

NAME = "bank_conflicts"
ROWS, BANKS, CHUNK_BYTES = 64, 32, 16
THREADS = range(8)
SHADES = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255")
Layout = Callable[[int, int], int]  # (row, chunk of 8 columns) -> byte in the tile


def row_major(row: int, chunk: int) -> int:
    """Rows of 256 bytes."""
    return 256 * row + CHUNK_BYTES * chunk


def slices(row: int, chunk: int) -> int:
    """Slices of 16 columns, one MMA step each, rows of 32 bytes, 32 bytes between slices."""
    return chunk // 2 * (ROWS * 32 + 32) + 32 * row + CHUNK_BYTES * (chunk % 2)


def swizzled(row: int, chunk: int) -> int:
    """Panels of 64 columns, rows of 128 bytes, chunk c of row r at c ^ (r % 8)."""
    return chunk // 8 * ROWS * 128 + 128 * row + CHUNK_BYTES * (chunk % 8 ^ row % 8)


LAYOUTS: dict[str, Layout] = {
    "row by row, 256 bytes each": row_major,
    "slices of 16 columns (steps 1 to 3)": slices,
    "swizzled panels of 64 columns (from step 4)": swizzled,
}


def banks(offset: int) -> range:
    """The banks that 16 bytes at this offset lie in."""
    first = offset // 4 % BANKS
    return range(first, first + CHUNK_BYTES // 4)


def wavefronts(offsets: Iterable[int]) -> int:
    """How many turns shared memory takes to serve these 16-byte accesses, at most eight of them."""
    return max(Counter(bank for offset in set(offsets) for bank in banks(offset)).values())


def ldmatrix_reads(layout: Layout, chunk: int) -> list[int]:
    """Offsets that threads 0 to 7 hand to ldmatrix: eight rows, the same eight columns."""
    return [layout(row, chunk) for row in THREADS]


def build(results: Results, frame: pd.DataFrame, folder: Path) -> str:
    """Draw the layouts, save them with their data, return the caption."""
    with style.styled():
        figure = style.new_figure(2.9)
        all_axes = figure.subplots(len(LAYOUTS), 1, sharex=True)
        for axes, (title, layout) in zip(all_axes, LAYOUTS.items(), strict=True):
            _draw(axes, title, layout)
        all_axes[-1].set_xlabel("bank of shared memory")
        style.save(figure, folder, NAME)
    records = [
        {"layout": title, "thread": thread, "bank": bank}
        for title, layout in LAYOUTS.items()
        for thread, offset in enumerate(ldmatrix_reads(layout, 0))
        for bank in banks(offset)
    ]
    pd.DataFrame(records).to_csv(folder / f"{NAME}.csv", index=False, lineterminator="\n")
    return "the banks that eight threads of one ldmatrix read, threads numbered"


def _draw(axes: Axes, title: str, layout: Layout) -> None:
    reads = ldmatrix_reads(layout, 0)
    for thread, offset in enumerate(reads):
        touched = banks(offset)
        axes.add_patch(
            Rectangle((touched[0], thread), len(touched), 1, color=SHADES[thread], linewidth=0)
        )
        axes.text(
            touched[0] + len(touched) / 2,
            thread + 0.5,
            str(thread),
            ha="center",
            va="center",
            fontsize=style.SMALL,
            color="black" if thread in (1, 4, 5) else "white",
        )
    turns = wavefronts(reads)
    axes.set_title(f"{title}: {turns} turn{'s' if turns > 1 else ''}", loc="left", fontsize=6)
    axes.set_xlim(0, BANKS)
    axes.set_ylim(len(THREADS), 0)
    axes.set_xticks(range(0, BANKS + 1, 4))
    axes.set_yticks([])
    axes.set_ylabel("thread")


SHEET = Sheet(
    name=NAME,
    title="Which thread reads which bank, before and after swizzling",
    experiment=EXPERIMENT,
    build=build,
)

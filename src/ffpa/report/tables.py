"""Tables over the head dimension and of what each kernel costs, as frames, Markdown and TeX."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from ffpa.record import DTypeName

from .names import Contestant, meanings
from .results import NoRowsError, Results, contestants_in, only

GAP = "–"
# In characters of TeX: a head's line, what is between two columns, and what a page holds.
HEAD_WIDTH, GAP_WIDTH, PAGE_WIDTH = 13, 2, 132
HEADDIMS = range(320, 1025, 64)
INPUTS = ["input_scale", "value_mean"]
SETTING = ["batch", "nheads_q", "nheads_kv", "seqlen_q", "seqlen_k", *INPUTS]


def headdim_panel(
    frame: pd.DataFrame,
    contestants: Callable[[Contestant], bool] = lambda contestant: True,
    dims: Sequence[int] = HEADDIMS,
    dtype: DTypeName = "fp16",
) -> pd.DataFrame:
    """The points of a figure over D: one dtype, not causal, one problem size.

    Raises:
        NoRowsError: nothing of that kind was recorded.
    """
    panel = frame[
        (frame["dtype"] == dtype)
        & ~frame["causal"].astype(bool)
        & (frame["variant"] == "")
        & frame["headdim"].isin(dims)
        & frame["contestant"].map(contestants)
    ]
    if panel.empty:
        name = "/".join(sorted(set(frame["experiment"])))
        raise NoRowsError(
            f"experiment {name} has no {dtype} rows, not causal, of such contestants with D = "
            f"{dims[0]}..{dims[-1]}: `nox -s bench -- experiment={name}` on a machine with a GPU "
            "records them"
        )
    return one_setting(panel)


def one_setting(frame: pd.DataFrame) -> pd.DataFrame:
    """The points of the size that has most of them; at a tie the longer, then smaller inputs."""
    sizes = frame.groupby(SETTING).size().reset_index(name="points")
    order = ["points", "seqlen_k", *INPUTS]
    chosen = sizes.sort_values(order, ascending=[True, True, False, False]).iloc[-1]
    return frame[(frame[SETTING] == chosen[SETTING]).all(axis="columns")]


def stale_notes(frame: pd.DataFrame) -> list[str]:
    """The sentence that names whose rows were recorded with other kernel sources, if any were."""
    labels = [contestant.label for contestant in contestants_in(frame[frame["stale"]])]
    return [f"STALE, recorded with other kernel sources: {', '.join(labels)}"] if labels else []


def absent_notes(frame: pd.DataFrame, could_not: str) -> list[str]:
    """The sentence that names who has no result among these points, if anybody."""
    labels = [
        contestant.label
        for contestant in contestants_in(frame)
        if not only(frame, contestant)["counts"].any()
    ]
    return [f"{could_not}: {', '.join(labels)}"] if labels else []


def headdim_table(frame: pd.DataFrame, dims: Sequence[int] = HEADDIMS) -> pd.DataFrame:
    """TFLOP/s by D and contestant; our kernels with their speed-up over EA in brackets.

    Contestants that ran nowhere have no column: the caption names them.
    """
    panel = headdim_panel(frame, dims=dims)
    table = pd.DataFrame({"D": sorted(panel["headdim"].unique())})
    for contestant in contestants_in(panel):
        points = only(panel, contestant).set_index("headdim")
        if points["counts"].any():
            cells = [rate_cell(points, dim) for dim in table["D"]]
            table[contestant.label] = cells
    return table


def headdim_caption(results: Results, frame: pd.DataFrame, dims: Sequence[int] = HEADDIMS) -> str:
    """What the table over D rests on: device, size, notes, and who could not run."""
    panel = headdim_panel(frame, dims=dims)
    sentences = [f"{results.device}; {panel.iloc[0]['size']}; medians in TFLOP/s"]
    sentences += sorted({f"{label}: {note}" for label, note in _notes(results, panel)})
    sentences += meanings(contestants_in(panel))
    sentences += absent_notes(panel, "could run at no D") + stale_notes(panel)
    return "; ".join(sentences)


def resource_table(results: Results, frame: pd.DataFrame) -> pd.DataFrame:
    """Registers per thread, and bytes spilled if any, of our kernels by D.

    As the compiler reported them for the device's architecture.

    Raises:
        NoRowsError: no build of these kernels was recorded.
    """
    panel = headdim_panel(frame)
    table = pd.DataFrame({"D": sorted(panel["headdim"].unique())})
    for contestant in contestants_in(panel):
        if contestant.is_ours:
            costs = [costs_of(results, contestant, dim) for dim in table["D"]]
            cells = [str(cost) if cost else GAP for cost in costs]
            if any(cell != GAP for cell in cells):
                table[contestant.label] = cells
    if len(table.columns) == 1:
        raise NoRowsError(
            f"{results.name}/environment.json has no build of the measured kernels: "
            "`nox -s bench -- experiment=headdim` on a machine with a GPU records one"
        )
    return table


def resource_caption(results: Results) -> str:
    """What the table of resources shows."""
    arch = (results.capability or "").replace(".", "")
    return f"per thread, fp16, compiled for sm_{arch}; + bytes spilled to local memory, if any"


def to_markdown(table: pd.DataFrame, align: Literal["left", "right"] = "right") -> str:
    """Pipe table."""
    escaped = table.map(lambda cell: str(cell).replace("|", "\\|"))
    aligned = [align] * len(table.columns)
    return escaped.to_markdown(index=False, colalign=aligned, disable_numparse=True) + "\n"


def to_tex(table: pd.DataFrame) -> str:
    """booktabs tabulars: one, or several below each other for a table wider than a page."""
    return "\n\\medskip\n\n".join(_tabular(part) for part in parts_of(table))


def parts_of(table: pd.DataFrame) -> list[pd.DataFrame]:
    """The table by columns, in as few parts as fit a page.

    Each begins with the columns that tell its lines apart.
    """
    columns = len(table.columns)
    keys = 1
    while keys < columns and table.iloc[:, :keys].duplicated().any():
        keys += 1
    parts = [table]
    while max(map(tex_width, parts)) > PAGE_WIDTH and len(parts) < columns - keys:
        cuts = np.array_split(np.arange(keys, columns), len(parts) + 1)
        parts = [table.iloc[:, [*range(keys), *cut]] for cut in cuts]
    return parts


def tex_width(table: pd.DataFrame) -> int:
    """Characters across a table as it is set."""
    return sum(_width_of(table, name) for name in table.columns)


def _width_of(table: pd.DataFrame, name: str) -> int:
    lines = [*head_lines(name), *(str(cell) for cell in table[name])]
    return max(map(len, lines)) + GAP_WIDTH


def _tabular(table: pd.DataFrame) -> str:
    styler = table.style.hide(axis="index").format(escape="latex")
    styler = styler.format_index(_stacked, axis="columns")
    # Words to the left, numbers to the right.
    sides = ["l" if str(cells.iloc[0])[:1].isalpha() else "r" for _, cells in table.items()]
    text = str(styler.to_latex(hrules=True, column_format="".join(sides)))
    return text.replace(GAP, "--")


def head_lines(head: str) -> list[str]:
    """A column's head as it is broken: its words, short ones together."""
    return textwrap.wrap(head, HEAD_WIDTH, break_long_words=False)


def _stacked(head: object) -> str:
    lines = [line.replace("_", r"\_").replace("%", r"\%") for line in head_lines(str(head))]
    stacked = r" \\ ".join(lines)
    return rf"\shortstack{{{stacked}}}" if len(lines) > 1 else stacked


def _notes(results: Results, panel: pd.DataFrame) -> list[tuple[str, str]]:
    found = [(contestant.label, results.note(contestant)) for contestant in contestants_in(panel)]
    return [(label, note) for label, note in found if note]


def rate_cell(points: pd.DataFrame, dim: int) -> str:
    """TFLOP/s, and for our kernels the speed-up over EA in brackets."""
    if dim not in points.index or not points.loc[dim, "counts"]:
        return GAP
    point = points.loc[dim]
    text = f"{point['tflops']:.0f}" if point["tflops"] >= 10 else f"{point['tflops']:.1f}"
    if point["acc"] and pd.notna(point["speedup"]):
        text += f" ({point['speedup']:.2f})"
    return text


class Costs(NamedTuple):
    """What the compiler made of an instance, for the device."""

    registers: int
    spill_bytes: int
    smem_bytes: int | None  # of a CTA; None where no build or profile tells

    def __str__(self) -> str:
        return f"{self.registers}" + (f" + {self.spill_bytes} B" if self.spill_bytes else "")


def costs_of(results: Results, contestant: Contestant, dim: int) -> Costs | None:
    """What the kernel that runs a head dimension takes; None where no build tells."""
    build = results.build_of(contestant)
    device = (results.capability or "").replace(".", "")
    # A kernel runs any head dimension up to the one it was compiled for, on the nearest above.
    compiled = {
        int(name.split("/")[1].removeprefix("d")): (name, architectures)
        for name, architectures in (build.kernels if build else {}).items()
        if _instance_of(name, contestant)
    }
    nearest = min((headdim for headdim in compiled if headdim >= dim), default=None)
    if nearest is None:
        return None
    name, architectures = compiled[nearest]
    for arch, costs in sorted(architectures.items()):
        if arch.rstrip("a") == device:
            smem = costs.get("smem_bytes") or _profiled_smem(results, name)
            return Costs(costs["registers"], costs["spill_bytes"], smem)
    return None


def _profiled_smem(results: Results, instance: str) -> int | None:
    """What a profiler saw: builds recorded before they told it have registers only."""
    profiles = results.profiles.profiles if results.profiles else ()
    return next((one.smem_bytes for one in profiles if one.instance == instance), None)


def _instance_of(name: str, contestant: Contestant) -> bool:
    kernel, _, dtype, acc, *variant = name.split("/")
    known = (kernel, dtype, acc, "/".join(variant))
    return known == (contestant.kernel, "fp16", contestant.acc, contestant.variant)

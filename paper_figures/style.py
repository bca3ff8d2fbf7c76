"""The look of every figure, and how a figure becomes files that are equal on every rebuild."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ffpa.report.names import Contestant

COLUMN_INCHES = 3.33  # one column of a two-column paper
SMALL = 5.5  # points: notes and gap marks
GREY = "#666666"

RC: dict[str, Any] = {
    # The fonts that matplotlib ships, by name: a machine's own fonts must not change the bytes.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    "font.size": 7,
    "axes.labelsize": 7,
    "xtick.labelsize": 6,
    "ytick.labelsize": 6,
    "legend.fontsize": 6,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.4,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.0,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.fonttype": "path",
    "svg.hashsalt": "ffpa",  # element ids would be random otherwise
}

# Colours of Okabe and Ito, and of Tol's muted set: told apart with any colour vision, and every
# contestant has a marker of its own besides. F32 is the darker one of a kernel's pair.
_APPEARANCE: dict[tuple[str, str | None], tuple[str, str, str]] = {
    ("split_d-sm90", "f32"): ("#D55E00", "s", "-"),
    ("split_d-sm90", "f16"): ("#E69F00", "D", "-"),
    ("split_d-sm80", "f32"): ("#0072B2", "o", "-"),
    ("split_d-sm80", "f16"): ("#56B4E9", "^", "-"),
    ("split_d-sm80", "f16f32"): ("#117733", "P", "-"),
    ("split_d-sm80", "qk16_pv32"): ("#332288", "d", "-"),
    ("split_d-sm80", "qk32_pv16"): ("#AA4499", "*", "-"),
    ("split_kv-sm80", "f32"): ("#CC6677", "*", "-"),
    ("split_kv-sm80", "f16"): ("#EE99AA", "8", "-"),
    ("naive", "f32"): ("#661100", "H", "-"),
    ("sdpa-efficient", None): ("#000000", "v", "-"),
    ("sdpa-flash", None): ("#009E73", "<", "--"),
    ("sdpa-cudnn", None): ("#CC79A7", ">", "--"),
    ("sdpa-math", None): ("#888888", "p", "--"),
    ("flex", None): ("#999933", "P", "--"),
    ("ffpa-attn", None): ("#882255", "h", "--"),
    ("flash-attn-4", None): ("#44AA99", "X", "--"),
    ("ceiling-matmul", None): (GREY, "", ":"),
    ("ceiling-square", None): ("#333333", "", "-."),
    ("ceiling-copy", None): (GREY, "|", ":"),
}
_SPARE_COLOURS = ("#6699CC", "#004488", "#997700", "#994455", "#EE99AA")
_SPARE_MARKERS = ("*", "d", "8", "H")


def appearance(contestant: Contestant) -> dict[str, Any]:
    """Colour, marker and line of a contestant, the same in every figure.

    One without an entry above gets a spare look that depends on its name alone.
    """
    key = (contestant.kernel, contestant.acc)
    if key in _APPEARANCE and not contestant.variant:
        colour, marker, line = _APPEARANCE[key]
    else:
        pick = zlib.crc32(contestant.label.encode())
        colour = _SPARE_COLOURS[pick % len(_SPARE_COLOURS)]
        marker = _SPARE_MARKERS[pick // len(_SPARE_COLOURS) % len(_SPARE_MARKERS)]
        line = "-" if contestant.is_ours else "--"
    return {"color": colour, "marker": marker, "linestyle": line}


def new_figure(height: float) -> Figure:
    """An empty figure of column width; `height` in inches. Call inside `styled()`."""
    layout = ConstrainedLayoutEngine(h_pad=0.02, w_pad=0.02, hspace=0)
    return Figure(figsize=(COLUMN_INCHES, height), layout=layout)


def styled() -> Any:
    """Context in which figures are drawn and saved."""
    # Defaults first: a user's matplotlibrc must not change the bytes.
    settings: dict[Any, Any] = dict(matplotlib.rcParamsDefault) | RC
    return matplotlib.rc_context(settings)


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write NAME.pdf, NAME.svg and NAME.png without dates, versions or random ids."""
    figure.savefig(
        folder / f"{name}.pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None}
    )
    svg = folder / f"{name}.svg"
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    svg.write_text(_numbered(svg.read_text()))
    figure.savefig(folder / f"{name}.png", metadata={"Software": None})


def _numbered(svg: str) -> str:
    """The SVG with ids like p3 for p6199237e93.

    matplotlib's are hashes of coordinates to the last bit, which differs between processors.
    """
    names: dict[str, str] = {}
    return re.sub(
        r"\b[a-zA-Z][0-9a-f]{10}\b",
        lambda found: names.setdefault(found[0], f"{found[0][0]}{len(names)}"),
        svg,
    )

"""The recorded speeds of shapes of conf/shape, as a table: nothing in it is measured here."""

from __future__ import annotations

import yaml

from ffpa.record import Row
from ffpa.record.store import REPOSITORY
from ffpa.report.results import PAPER_FOLDER, Results

EXPERIMENT = "scenarios"


def table(*shapes: str) -> str:
    """Markdown: milliseconds and TFLOP/s of each contestant on each shape, the fastest first."""
    results = Results.load(PAPER_FOLDER)
    rows = [row for row in results.rows if row.experiment == EXPERIMENT and row.status == "ok"]
    lines = ["| shape | contestant | ms | TFLOP/s |", "| --- | --- | --- | --- |"]
    stale = False
    for shape in shapes:
        sizes = _sizes(shape)
        newest = {
            (row.kernel, row.acc, row.variant): row for row in rows if _sizes_of(row) == sizes
        }
        for row in sorted(newest.values(), key=lambda row: row.median_ms):
            stale |= row.source_hash != results.source_hash
            name = " ".join(part for part in (row.kernel, row.variant, row.acc) if part)
            lines.append(f"| {shape} | {name} | {row.median_ms:.3f} | {row.tflops:.1f} |")
    caption = f"{results.device}, rows recorded by experiment={EXPERIMENT}"
    return "\n".join([*lines, "", caption + (", some by older sources" if stale else "") + "."])


def _sizes(shape: str) -> tuple[object, ...]:
    """What conf/shape says, with the defaults of the settings, in the order of _sizes_of."""
    fields = yaml.safe_load((REPOSITORY / "conf" / "shape" / f"{shape}.yaml").read_text())
    b, h, n, d = (fields[key] for key in "bhnd")
    causal = fields.get("causal", False)
    return (
        b,
        h,
        fields.get("hkv", h),
        n,
        fields.get("nk", n),
        d,
        causal,
        fields.get("dtype", "fp16"),
    )


def _sizes_of(row: Row) -> tuple[object, ...]:
    return (
        row.batch, row.nheads_q, row.nheads_kv, row.seqlen_q, row.seqlen_k, row.headdim,
        row.causal, row.dtype,
    )  # fmt: skip

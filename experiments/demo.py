"""Check every step of the ladder against float64, then time them all beside FlashAttention-2.

`python experiments/demo.py [N ...]` takes the sequence lengths, 1024 2048 4096 8192 unless given.
Nothing is recorded. Without a GPU it prints the ladder as recorded on the paper's, and says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

import torch

from ffpa.measure.engines import GpuEngine
from ffpa.measure.identity import Provenance
from ffpa.record import Row
from ffpa.record.store import PAPER_FOLDER
from ffpa.report.ladder import EXPERIMENT, HEADDIM, ladder_caption, ladder_panel, ladder_table
from ffpa.report.results import NoRowsError, Results
from ffpa.report.tables import to_markdown
from ffpa.settings import DType, MeasureSettings, Settings

LENGTHS = (1024, 2048, 4096, 8192)


def checks() -> Iterator[Settings]:
    """Shapes off every tile's grid, grouped heads, all rows compared."""
    rules = MeasureSettings(warmup_s=0, min_rounds=1, max_rounds=1, ceiling=False, oracle_rows=1000)
    for dtype in DType:
        yield Settings(
            name=EXPERIMENT, b=2, h=4, hkv=2, n=1000, nk=777, d=HEADDIM, dtype=dtype,
            acc={"f32": True}, kernels={"ladder": True}, measure=rules,
        )  # fmt: skip


def rungs(seqlen: int) -> Settings:
    """What experiment=ladder measures, in fewer rounds."""
    return Settings(
        name=EXPERIMENT, b=16, h=32, n=seqlen, d=HEADDIM, acc={"f32": True},
        kernels={"ladder": True, "split_d-sm90": True},
        baselines={"sdpa-flash": True, "sdpa-cudnn": True, "flash-attn-4": True},
        measure=MeasureSettings(min_rounds=10, max_rounds=10, budget_s=1, ceiling=False),
    )  # fmt: skip


def check_text(row: Row) -> str:
    """What became of a step at one shape."""
    size = f"{row.dtype}, {row.seqlen_q} rows, {row.seqlen_k} keys"
    if row.status == "ok":
        return f"{row.kernel}, {size}: right, relative error {row.err_rel:.1e} against float64"
    return f"{row.kernel}, {size}: {row.status}, {row.reason}"


def measured(lengths: Sequence[int]) -> tuple[Results, list[Row]]:
    """The ladder of this machine, and the rows of steps that were wrong or did not run."""
    engine = GpuEngine()
    environment = engine.environment()
    provenance = Provenance("demo", environment.env_hash, engine.source_hash)

    def rows_of(settings: Settings) -> list[Row]:
        rows = engine.measure(settings, engine.contestants(settings), provenance, lambda step: None)
        return rows

    faults = []
    for settings in checks():
        for row in rows_of(settings):
            print(check_text(row))
            faults += [row] if row.status != "ok" else []
    rows = [row for seqlen in lengths for row in rows_of(rungs(seqlen))]
    results = Results(
        PAPER_FOLDER.parent / engine.slug,
        tuple(rows),
        {provenance.env_hash: environment},
        engine.source_hash,
    )
    return results, faults


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lengths", metavar="N", type=int, nargs="*", help="sequence lengths")
    options = parser.parse_args(arguments)
    faults: list[Row] = []
    try:
        if torch.cuda.is_available():
            results, faults = measured(options.lengths or LENGTHS)
        else:
            results = Results.load(PAPER_FOLDER)
            print(f"no CUDA device: this is the ladder as recorded on {results.device}")
        panel = ladder_panel(results)
    except (ImportError, NoRowsError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\n{to_markdown(ladder_table(panel))}\n{ladder_caption(results, panel)}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())

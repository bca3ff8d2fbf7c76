"""The columns of a row that are known before anything runs."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from ffpa.settings import Settings

from .shape import Shape


@dataclass(frozen=True)
class Provenance:
    """Where rows come from."""

    run_id: str
    env_hash: str
    source_hash: str


def shape_of(settings: Settings) -> Shape:
    """The shape of a point."""
    return Shape(
        batch=settings.b,
        nheads_q=settings.h,
        nheads_kv=settings.nheads_kv,
        seqlen_q=settings.n,
        seqlen_k=settings.seqlen_k,
        headdim=settings.d,
        causal=settings.causal,
        dtype=settings.dtype.value,
    )


def identity(settings: Settings, shape: Shape, provenance: Provenance) -> dict[str, Any]:
    """Columns that all rows of a point share. `shape` is what truly runs."""
    return {
        "experiment": settings.results_name,
        "tag": settings.tag,
        "process": os.getpid(),
        "seed": settings.seed,
        "input_scale": settings.measure.input_scale,
        "value_mean": settings.measure.value_mean,
        **asdict(provenance),
        **asdict(shape),
    }


def significant(value: float) -> float:
    """Six digits: what an error of half precision can carry."""
    return float(f"{value:.6g}")

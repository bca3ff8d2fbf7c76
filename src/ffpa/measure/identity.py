"""The columns of a row that are known before anything runs."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from ffpa.record import inputs_in_short
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


def point_of(settings: Settings) -> str:
    """A point in words: its shape, and its inputs where they are not standard normal."""
    spread = (settings.measure.input_scale, settings.measure.value_mean)
    shape = str(shape_of(settings))
    return shape if spread == (1, 0) else f"{shape} {inputs_in_short(*spread)}"


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

"""Without a GPU: errors of each accumulator by the CPU model of the kernels' rounding."""

from __future__ import annotations

from dataclasses import replace

import torch

from ffpa.errors import UnsupportedError
from ffpa.numerics import attention_model
from ffpa.record import Row
from ffpa.settings import Settings, accumulators

from .contestants import problem_of
from .gate import Gate
from .identity import Provenance, identity, shape_of, significant
from .inputs import make_inputs

CPU_KERNEL = "numerics-cpu"
MAX_SEQLEN = 128  # the model rounds after every step of every sum: seconds, not milliseconds
MAX_HEADS = 2


def small(settings: Settings) -> Settings:
    """The point that the model runs in place of `settings`: same D and mask, little N, B and H."""
    heads = min(settings.h, MAX_HEADS)
    return replace(
        settings,
        b=1,
        h=heads,
        hkv=1 if settings.nheads_kv != settings.h else heads,
        n=min(settings.n, MAX_SEQLEN),
        nk=min(settings.seqlen_k, MAX_SEQLEN),
    )


def model_point(settings: Settings, provenance: Provenance) -> list[Row]:
    """One row per accumulator, with errors against float64 and no times."""
    shape = shape_of(settings)
    spread = (settings.measure.input_scale, settings.measure.value_mean)
    inputs = make_inputs(shape, torch.device("cpu"), settings.seed, *spread)
    gate = Gate(inputs, shape.seqlen_q, settings.seed, *spread)
    rows = []
    for acc in accumulators(settings):
        common = {
            **identity(settings, shape, provenance),
            "kernel": CPU_KERNEL,
            "acc": acc,
            "backend": "CPU model of the accumulators",
        }
        try:
            problem_of(shape, acc).check()
        except UnsupportedError as refusal:
            rows.append(Row(**common, status="unsupported", reason=str(refusal)))
            continue
        output = attention_model(
            inputs.query, inputs.key, inputs.value, acc=acc, is_causal=shape.causal
        )
        error = gate.error(output)
        fault = gate.fault(error, acc)
        rows.append(
            Row(
                **common,
                status="wrong_result" if fault else "ok",
                reason=fault,
                err_rel=significant(error.relative) if error.finite else None,
                err_max=significant(error.maximum) if error.finite else None,
            )
        )
    return rows

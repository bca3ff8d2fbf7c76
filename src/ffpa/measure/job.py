"""Measure one point: every contestant on one shape, in one set of rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ffpa.errors import UnsupportedError
from ffpa.record import Row, Status, iqr_of, median_of
from ffpa.settings import MeasureSettings, Settings

from .ceiling import COPY, check_possible
from .contestants import (
    Contestant,
    Ready,
    make_ready,
    memory_of,
)
from .device import Device
from .faults import DeviceLostError, classify, out_of_memory_reason
from .gate import Error, Gate
from .identity import Provenance, identity, shape_of, significant
from .inputs import Inputs, make_inputs
from .rounds import Rounds, Series, run_rounds, warm_up


@dataclass(frozen=True)
class Session:
    """What all points of a launch on a GPU share."""

    provenance: Provenance
    device: Device


@dataclass
class Entry:
    """A contestant on its way through the point."""

    contestant: Contestant
    backend: str
    ready: Ready | None = None
    error: Error | None = None
    repeats: bool | None = None
    status: Status = "ok"
    reason: str | None = None
    first_s: float = 0.0
    series: Series = field(default_factory=Series)

    def fail(self, status: Status, reason: str) -> None:
        """Leave the contest."""
        self.status, self.reason, self.ready = status, reason, None


def measure_point(
    settings: Settings,
    contestants: list[Contestant],
    session: Session,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Rows of all contestants, in their order.

    Raises:
        ImpossibleResultError: a rate above the device's peak; no row of the point is to be kept.
        DeviceLostError: a launch broke the CUDA context.
    """
    rules = settings.measure
    device = session.device
    device.release()
    progress("inputs and reference")
    try:
        spread = (rules.input_scale, rules.value_mean)
        inputs = make_inputs(shape_of(settings), device.where, settings.seed, *spread)
        gate = Gate(inputs, rules.oracle_rows, settings.seed, *spread)
    except torch.OutOfMemoryError as error:
        entries = [Entry(contestant, contestant.kernel) for contestant in contestants]
        for entry in entries:
            entry.fail("oom", f"inputs or reference: {out_of_memory_reason(error)}")
        return [to_row(entry, Rounds({}), settings, session) for entry in entries]
    entries = []
    for contestant in contestants:
        progress(contestant.label)
        entries.append(admit(contestant, inputs, gate, device, rules))

    racing = {entry.contestant.label: entry for entry in entries if entry.ready}
    launches = {label: entry.ready.launch for label, entry in racing.items() if entry.ready}
    timer = device.timer(cold=rules.cold)
    quick = {label: launches[label] for label, e in racing.items() if e.first_s < rules.warmup_s}
    progress("warm-up")
    warm_up(quick, timer, rules.warmup_s, clock=time.monotonic)
    rounds = run_rounds(
        launches,
        timer,
        rules,
        settings.seed,
        classify=lambda label, error: classify(error, ours=racing[label].contestant.ours),
        progress=lambda kept: progress(f"round {kept}"),
    )
    device.finish()
    for label, entry in racing.items():
        entry.series = rounds.series[label]
    rows = [to_row(entry, rounds, settings, session) for entry in entries]
    for row in rows:
        if row.tflops is not None and row.kernel != COPY:  # which computes nothing
            check_possible(row.kernel, row.tflops, device.peak_tflops)
    return rows


def admit(
    contestant: Contestant, inputs: Inputs, gate: Gate, device: Device, rules: MeasureSettings
) -> Entry:
    """First launch of a contestant: can it run, is it right, how slow is it?"""
    entry = Entry(contestant, backend=contestant.kernel)
    need, free = memory_of(contestant, inputs), device.free_memory()
    if need > free:
        entry.fail("oom", f"needs {need / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free")
        return entry
    try:
        ready = make_ready(contestant, inputs, device.limits)
        entry.backend = ready.backend
        result, entry.first_s = launch_once(ready, device)
        if entry.first_s > rules.warmup_s and not contestant.ours:
            # It may have been compiling: the second launch tells what it really takes.
            result, entry.first_s = launch_once(ready, device)
        if contestant.ours:
            again, _ = launch_once(ready, device)
            entry.repeats = _same_bits(result, again)
            del again
    except UnsupportedError as refusal:
        entry.fail("unsupported", str(refusal))
        return entry
    except DeviceLostError:
        raise
    except Exception as error:  # of someone else's code: it ends this contestant, not the point
        device.finish()
        entry.fail(*classify(error, ours=contestant.ours))
        device.release()
        return entry
    entry.ready = ready
    if ready.output is not None:
        entry.error = gate.error(ready.output(result))
        if fault := gate.fault(entry.error, contestant.acc):
            entry.status, entry.reason = "wrong_result", fault
    if entry.first_s > rules.launch_timeout_s:
        entry.fail(
            "timeout",
            f"a launch took {entry.first_s:.0f} s, the limit is "
            f"measure.launch_timeout_s={rules.launch_timeout_s:g}",
        )
    return entry


def _same_bits(first: object, second: object) -> bool:
    """Whether two outputs agree in every bit, NaN included."""
    assert isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    return torch.equal(first.view(torch.int16), second.view(torch.int16))


def launch_once(ready: Ready, device: Device) -> tuple[object, float]:
    """What a launch returned, and the seconds until it was finished."""
    started = time.monotonic()
    result = ready.launch()
    device.finish()
    return result, time.monotonic() - started


def to_row(entry: Entry, rounds: Rounds, settings: Settings, session: Session) -> Row:
    """The row of a contestant after the rounds."""
    series = entry.series
    if series.failure is not None:
        entry.fail(*series.failure)
    timed = entry.ready is not None and bool(series.samples)
    if timed and entry.status == "ok" and rounds.throttled:
        entry.status = "throttled"
        entry.reason = f"{rounds.discarded} rounds were lost to {rounds.discard_reason}"
    elif entry.ready is not None and not timed:
        entry.fail("throttled", f"every round was lost to {rounds.discard_reason}")
    samples = series.samples_ms if timed else []
    error = entry.error if entry.error is not None and entry.error.finite else None
    median = median_of(samples) if samples else None
    return Row(
        **identity(settings, shape_of(settings), session.provenance),
        kernel=entry.contestant.kernel,
        acc=entry.contestant.acc,
        variant=entry.contestant.variant,
        backend=entry.backend,
        status=entry.status,
        reason=entry.reason,
        samples_ms=samples,
        median_ms=median,
        iqr_ms=iqr_of(samples) if samples else None,
        tflops=round(entry.ready.flops / median / 1e9, 6) if entry.ready and median else None,
        err_rel=significant(error.relative) if error else None,
        err_max=significant(error.maximum) if error else None,
        repeats=entry.repeats,
        rounds=len(samples),
        discarded=rounds.discarded if timed else 0,
        discard_reason=rounds.discard_reason if timed else None,
        stop=series.stop or None,
        sm_clock_mhz=series.median_state("sm_clock_mhz"),
        power_w=series.median_state("power_w"),
        power_capped=series.power_capped,
        requeued=series.requeued if timed else None,
        late=series.late if timed else None,
    )

"""Launches of run.py: the points that Hydra composed, run one after the other in one process."""

from __future__ import annotations

import secrets
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf

import ffpa
from ffpa.record import (
    Row,
    append_rows,
    load_environments,
    load_rows,
    remember,
    results_dir,
    results_path,
)
from ffpa.record.environment import Run, unchanged
from ffpa.record.provenance import git_state, tree_kernel_hashes, tree_source_hash
from ffpa.record.store import PAPER_FOLDER, REPOSITORY
from ffpa.settings import Device, Settings, SettingsError, check, chosen
from ffpa_build.errors import BuildError

from .ceiling import ImpossibleResultError
from .cpu import MAX_SEQLEN
from .engines import CpuEngine, Engine, GpuEngine, Planner
from .faults import DeviceLostError, short_reason
from .identity import Provenance, point_of
from .plan import Planned, forecast, is_recorded, spread, still_holds
from .preflight import no_device
from .show import console, overview_table, plan_table, progress_bar, results_table

INTERRUPTED = 130  # what a shell reports for Ctrl-C
FAULTS = (ImportError, BuildError, ValueError)  # of the build, the settings, or recorded files


def run_all(launches: Sequence[Launch]) -> int:
    """Run launches in turn, after telling what each will take; returns the exit code."""
    plans = {launch.name: plan for launch in launches if (plan := launch.plan())}
    if sum(map(len, plans.values())) > 1:
        console().print(overview_table(plans))
    code = 0
    for launch in launches:
        code = max(code, launch.finish())
        if launch.over:
            break
    return code


@cache
def engine_for(device: Device) -> Engine:
    """The GPU where there is one and it may be used, else the CPU model, and says so."""
    if device is not Device.cpu and torch.cuda.is_available():
        engine = GpuEngine()
        if engine.source_hash != tree_source_hash():
            print(
                "the extension was built from other sources than those in csrc, rows will be "
                "stale: rebuild it with pip install -e .",
                file=sys.stderr,
            )
        return engine
    if device is Device.cuda:
        raise SettingsError(no_device())
    why = "no CUDA device" if device is Device.auto else "device=cpu"
    console().print(
        f"{why}: the CPU model of the accumulators runs at N up to {MAX_SEQLEN}; it gives "
        "errors, no throughput"
    )
    return CpuEngine()


class Bench(NamedTuple):
    """Where a launch runs and where its rows go."""

    engine: Engine
    provenance: Provenance
    folder: Path


class Launch:
    """Collects the points of a run or sweep, then measures them."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._points: list[Settings] = []
        self._plan: list[Planned] | None = None
        self._bench: Bench | None = None
        self._failures: list[str] = []
        self._run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        self._console = console()
        self.over = False  # interrupted, or the device is lost: nothing more can run

    @property
    def name(self) -> str:
        """The experiment."""
        return self._points[0].results_name if self._points else ""

    def add(self, config: DictConfig) -> None:
        """Take a composed point; one that cannot be run is a failure of its own."""
        settings: Any = OmegaConf.to_object(config)
        try:
            check(settings)
        except SettingsError as error:
            self._failures.append(str(error))
        else:
            self._points.append(settings)

    def plan(self) -> list[Planned]:
        """Who runs at which points and what that is expected to take; [] when nothing can run."""
        if self._plan is None:
            try:
                self._plan = self._make_plan() if self._points else []
            except FAULTS as error:
                self._failures.append(str(error))
                self._plan = []
        return self._plan

    def finish(self) -> int:
        """Run what was collected; returns the exit code."""
        code = 0
        try:
            if plan := self.plan():
                self._run(plan)
        except KeyboardInterrupt:
            self._console.print("interrupted: rows so far are kept, go on with resume=true")
            code = INTERRUPTED
            self.over = True
        except FAULTS as error:
            self._failures.append(str(error))
        for failure in self._failures:
            print(f"failed: {failure}", file=sys.stderr)
        return code or int(bool(self._failures))

    def _make_plan(self) -> list[Planned]:
        first = self._points[0]
        points = spread(self._points, first.measure.max_points)
        if first.dry_run and first.device is not Device.cpu and not torch.cuda.is_available():
            holds = _holding(PAPER_FOLDER, tree_source_hash()) if first.stale else None
            return [_planned(Planner(), one, None, holds) for one in points]
        engine = engine_for(first.device)
        source = Provenance(self._run_id, engine.environment().env_hash, engine.source_hash)
        root = Path(first.results_dir).resolve() if first.results_dir else results_dir()
        self._bench = Bench(engine, source, root / engine.slug)
        # A sweep over N collapses to one point where the engine caps N.
        points = list({str(one): one for one in map(engine.fit, points)}.values())
        holds = _holding(self._bench.folder, engine.source_hash) if first.stale else None
        return [_planned(engine, one, self._bench, holds) for one in points]

    def _run(self, plan: Sequence[Planned]) -> None:
        if self._points[0].dry_run:
            self._console.print(plan_table(plan))
            return
        assert self._bench is not None
        engine, provenance, folder = self._bench
        todo = [point for point in plan if not point.recorded]
        if skipped := len(plan) - len(todo):
            self._console.print(f"{skipped} of {len(plan)} points are recorded already")
        if todo:
            run = {self._run_id: self._describe(engine)}
            remember(folder, engine.environment().model_copy(update={"runs": run}))
            self._measure(todo, engine, provenance, folder)

    def _measure(
        self,
        todo: Sequence[Planned],
        engine: Engine,
        provenance: Provenance,
        folder: Path,
    ) -> None:
        appended: dict[Path, int] = {}
        with progress_bar(len(todo)) as bar:
            for settings, contestants, *_ in todo:
                point = point_of(settings)
                bar.start(point)
                try:
                    rows = engine.measure(settings, contestants, provenance, bar.step)
                except DeviceLostError as error:
                    self._failures.append(f"{point}: {error}; the points after it did not run")
                    self.over = True
                    break
                except ImpossibleResultError as error:
                    self._failures.append(f"{point}: {error}")
                    continue
                except Exception as error:  # one point must not end the sweep
                    traceback.print_exc()
                    self._failures.append(f"{point}: {short_reason(error)}")
                    continue
                path = _rows_path(folder, settings)
                append_rows(path, rows)
                appended[path] = appended.get(path, 0) + len(rows)
                self._console.print(results_table(point, rows))
                self._note_wrong(settings, point, rows)
                bar.done()
        for path, count in appended.items():
            self._console.print(f"{count} rows appended to {_shown(path)}")

    def _note_wrong(self, settings: Settings, point: str, rows: Sequence[Row]) -> None:
        """A wrong result of ours fails the run; a baseline's is its own affair."""
        if not settings.measure.tolerate_wrong:
            self._failures += [
                f"{point} {row.kernel} acc={row.acc}: {row.reason}"
                for row in rows
                if row.status == "wrong_result" and row.acc is not None
            ]

    def _describe(self, engine: Engine) -> Run:
        git = git_state()
        first = self._points[0]
        missing = {"git_commit": git.reason} if git.reason else {}
        if engine.other_processes is None:
            missing["other_gpu_processes"] = "no CUDA device, or NVML does not tell"
        return Run(
            started=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            version=ffpa.__version__,
            git_commit=git.commit,
            git_dirty=git.dirty,
            diff_hash=git.diff_hash,
            command=" ".join(["experiments/run.py", *map(without_path, self._arguments)]),
            config={
                "measure": asdict(first.measure),
                "acc": chosen(first.acc),
                "kernels": chosen(first.kernels),
                "baselines": chosen(first.baselines),
                "seed": first.seed,
            },
            other_gpu_processes=engine.other_processes,
            missing=missing,
        )


def _rows_path(folder: Path, settings: Settings) -> Path:
    return results_path(folder.parent, folder.name, settings.results_name)


def _planned(
    engine: Planner | Engine,
    settings: Settings,
    bench: Bench | None,
    holds: Callable[[Row], bool] | None,
) -> Planned:
    """A point with its forecast, and whether it need not be measured.

    That is, if asked for, when it is recorded where it runs, or when none of its rows there is
    stale: `holds` tells them. With no device to run on the committed rows decide.
    """
    contestants = engine.contestants(settings)
    own = _rows_of(_rows_path(bench.folder, settings)) if bench else ()
    known = own or _rows_of(_rows_path(PAPER_FOLDER, settings))
    expected = forecast(settings, contestants, known, engine.capacity)
    done = False
    if bench and settings.resume:
        done = is_recorded(settings, contestants, own, bench.provenance)
    if holds:
        done = done or still_holds(settings, own if bench else known, holds)
    return Planned(settings, contestants, expected, done)


def _holding(folder: Path, source_hash: str) -> Callable[[Row], bool]:
    """Tells rows of a folder that are of these sources, or of others with the same kernel."""
    environments, now = load_environments(folder), tree_kernel_hashes()

    def holds(row: Row) -> bool:
        return row.source_hash == source_hash or unchanged(
            environments, now, row.backend, row.env_hash, row.source_hash
        )

    return holds


def _rows_of(path: Path) -> Sequence[Row]:
    return load_rows(path) if path.exists() else ()


def without_path(argument: str) -> str:
    """A command-line argument as it may be published: folders of this machine left out."""
    key, equals, value = argument.partition("=")
    return f"{key}=..." if equals and ("/" in value or "~" in value) else argument


def _shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else str(path)

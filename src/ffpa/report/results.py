"""The recorded rows of one device folder, pooled into points that tables and figures show."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ffpa.measure.tuning import search_command, searched_hashes
from ffpa.record import Environment, Row, load_environments, load_rows, results_dir
from ffpa.record.environment import Build, kernel_hash, unchanged
from ffpa.record.profile import KernelProfile, Profiles, load_profiles
from ffpa.record.provenance import tree_kernel_hashes, tree_source_hash
from ffpa.record.store import PAPER_FOLDER, REPOSITORY, REPRODUCED
from ffpa.settings import SettingsError

from . import statistics
from .names import EFFICIENT, Contestant, compiled_for
from .points import Point, Shape, process_of
from .statistics import Estimate, Runs

SEARCH = "tune"  # the results file of experiments/tune.py
# What a frame has of the profile, by column.
PROFILED: dict[str, Callable[[KernelProfile], float]] = {
    "conflicts": lambda profile: profile.conflict_share,
    "warps": lambda profile: profile.warps_per_sm,
    "dram": lambda profile: profile.dram_pct / 100,
}
LATE_SHARE = 0.1  # a point with the host's own time in more of its samples is marked


class NoRowsError(Exception):
    """Nothing recorded to show; the message says which command records it."""


class NotRecordedError(NoRowsError):
    """An experiment, or the profile, that was not recorded here or shows nothing of this device."""


@dataclass(frozen=True)
class Results:
    """Everything recorded in one folder such as experiments/results/h200; newest rows last."""

    folder: Path
    rows: tuple[Row, ...]
    environments: dict[str, Environment]
    source_hash: str  # of the work tree: what rows have to match,
    profiles: Profiles | None = None
    kernel_hashes: Mapping[str, str] = field(default_factory=dict)  # or else that of their kernel
    _by_run: dict[tuple[object, ...], Row] = field(default_factory=dict, repr=False)
    _frames: dict[tuple[str, Contestant], pd.DataFrame] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for row in self.rows:
            self._by_run[(*_run(row), row.kernel, row.acc, row.variant)] = row

    @classmethod
    def load(cls, folder: Path, source_hash: str | None = None) -> Results:
        """Read all experiments of a folder. Raises ValueError naming a bad file and line."""
        environments = load_environments(folder)
        started = {
            name: run.started
            for environment in environments.values()
            for name, run in environment.runs.items()
        }
        rows = [row for file in sorted(folder.glob("*.jsonl")) for row in load_rows(file)]
        # A search, built from sources of its own, is never what the newest rows tell about.
        rows.sort(key=lambda row: (row.experiment != SEARCH, started.get(row.run_id, "")))
        profiles = load_profiles(folder)
        kernels = {} if source_hash else tree_kernel_hashes()
        source = source_hash or tree_source_hash()
        return cls(folder, tuple(rows), environments, source, profiles, kernels)

    @property
    def name(self) -> str:
        """The folder's name; with its parent's when it is not among the committed ones."""
        if self.folder.parent == PAPER_FOLDER.parent:
            return self.folder.name
        return f"{self.folder.parent.name}-{self.folder.name}"

    @property
    def setting(self) -> str:
        """Device and software in short: "NVIDIA H200, CUDA 13.0, torch 2.11.0"."""
        if self.environment is None:
            return self.device
        software = self.environment.software
        cuda = f", CUDA {software.cuda_runtime}" if software.cuda_runtime else ""
        return f"{self.device}{cuda}, torch {software.torch.split('+')[0]}"

    @property
    def environment(self) -> Environment | None:
        """The environment of the newest row."""
        return self.environments.get(self.rows[-1].env_hash) if self.rows else None

    @property
    def capability(self) -> str | None:
        """Compute capability of the device, as "9.0"; None for the CPU model."""
        gpu = self.environment.gpu if self.environment else None
        return gpu.capability if gpu else None

    @property
    def device(self) -> str:
        """The GPU's name; the folder's when nothing tells."""
        if self.environment is None:
            return self.name
        return self.environment.gpu.name if self.environment.gpu else "CPU model"

    @property
    def experiments(self) -> list[str]:
        return sorted({row.experiment for row in self.rows})

    def commands(self, experiment: str) -> list[str]:
        """The command lines that recorded an experiment's rows, with their dates."""
        wanted: dict[tuple[str, str], Row] = {}
        for row in self.rows:
            if row.experiment == experiment:
                wanted.setdefault((row.env_hash, row.run_id), row)
        found = []
        for (env_hash, run_id), row in wanted.items():
            environment = self.environments.get(env_hash)
            if environment and (run := environment.runs.get(run_id)):
                command = run.command
                if experiment == SEARCH:
                    command = search_command(REPOSITORY, command, row)
                found.append(f"python {command}  # {run.started[:10]}")
        return found

    def build_of(self, contestant: Contestant) -> Build | None:
        """How the extension that the newest rows of a kernel came from was compiled."""
        rows = [row for row in self.rows if _contestant(row) == contestant]
        environment = self.environments.get(rows[-1].env_hash) if rows else None
        return environment.builds.get(rows[-1].source_hash) if environment else None

    def note(self, contestant: Contestant) -> str | None:
        """Whether the kernel was measured on another architecture than the one it is for."""
        return compiled_for(contestant.kernel, self.capability) if contestant.is_ours else None

    def points(self, experiment: str) -> list[Point]:
        """Points of an experiment, ordered by contestant, then shape.

        Raises:
            NotRecordedError: the experiment was not recorded here.
        """
        rows = [row for row in self.rows if row.experiment == experiment]
        if not rows:
            raise NotRecordedError(
                f"no rows of experiment {experiment} in {shown(self.folder)}: "
                f"`nox -s bench -- experiment={experiment}` on a machine with a GPU records them"
            )
        groups: dict[tuple[Contestant, Shape], list[Row]] = {}
        for row in rows:
            groups.setdefault((_contestant(row), row.shape), []).append(row)
        points = [self._point(*key, group) for key, group in groups.items()]
        return sorted(points, key=lambda point: (point.contestant.rank, point.shape))

    def speedup(self, point: Point, over: Contestant) -> Estimate | None:
        """Per-round time of `over` divided by that of the point, in the same processes.

        None when the two never ran, rightly, in one process.
        """
        ratios = self._speedups(point, over)
        return statistics.median(list(ratios.values())) if ratios else None

    def over_peers(
        self, experiment: str, contestant: Contestant
    ) -> dict[Shape, tuple[Contestant, Estimate]]:
        """By shape, the fastest of the baselines in the same processes, and the speed-up over it.

        Shapes at which the contestant or every baseline failed are left out.
        """
        points = self.points(experiment)
        peers = {point.contestant for point in points if point.contestant.is_peer}
        found = {}
        for point in points:
            if point.contestant == contestant:
                ratios = [(peer, self.speedup(point, peer)) for peer in sorted(peers)]
                known = [(peer, ratio) for peer, ratio in ratios if ratio]
                if known:
                    found[point.shape] = min(known, key=lambda entry: entry[1].value)
        return found

    def frame(self, experiment: str, over: Contestant = EFFICIENT) -> pd.DataFrame:
        """One line per point: identity, status, medians, rate, speed-up, errors, staleness."""
        key = (experiment, over)
        if key not in self._frames:  # bootstrapping takes seconds
            records = [self._record(point, over) for point in self.points(experiment)]
            self._frames[key] = pd.DataFrame(records)
        return self._frames[key]

    def _speedups(self, point: Point, over: Contestant) -> Runs:
        """The ratio of every round, by process."""
        ratios = {}
        for row in point.rows:
            other = self._by_run.get((*_run(row), *over))
            if point.counts and row.samples_ms and other and other.status in ("ok", "throttled"):
                ratios[process_of(row)] = statistics.round_ratios(other.samples_ms, row.samples_ms)
        return ratios

    def _point(self, contestant: Contestant, shape: Shape, rows: Sequence[Row]) -> Point:
        newest = rows[-1]
        pooled = tuple(
            row
            for row in rows
            if (row.env_hash, row.source_hash) == (newest.env_hash, newest.source_hash)
        )
        # Baselines and ceilings do not depend on our sources, so they do not go stale with them.
        stale = contestant.is_ours and not (
            newest.source_hash in self._current(newest)
            or self.unchanged(newest.backend, newest.env_hash, newest.source_hash)
        )
        return Point(contestant, shape, pooled, stale)

    def unchanged(self, kernel: str | None, env_hash: str, source_hash: str) -> bool:
        """Whether a kernel is still compiled from the sources that it was recorded with."""
        return unchanged(self.environments, self.kernel_hashes, kernel, env_hash, source_hash)

    def _current(self, row: Row) -> set[str]:
        """Hashes of sources whose rows are not stale, whatever kernel they are of.

        The candidates of a search are compiled from the tree's sources with another list of
        kernels: those that have rows, beside the shipped one.
        """
        if row.experiment != SEARCH:
            return {self.source_hash}
        point = (row.kernel, row.headdim, row.dtype, row.acc)
        variants = {
            other.variant
            for other in self.rows
            if other.source_hash == row.source_hash
            and (other.kernel, other.headdim, other.dtype, other.acc) == point
        }
        return _searched(*point, frozenset(variants))

    def _record(self, point: Point, over: Contestant) -> dict[str, object]:
        row = point.deciding
        alone = point.contestant.is_ceiling or point.contestant == over
        speedups = {} if alone else self._speedups(point, over)
        speedup = statistics.median(list(speedups.values())) if speedups else None
        return {
            "contestant": point.contestant,
            "shape": point.shape,
            "experiment": row.experiment,
            "size": point.size,
            "kernel": row.kernel,
            "acc": row.acc or "",
            "variant": row.variant,
            "dtype": row.dtype,
            "batch": row.batch,
            "nheads_q": row.nheads_q,
            "nheads_kv": row.nheads_kv,
            "seqlen_q": row.seqlen_q,
            "seqlen_k": row.seqlen_k,
            "headdim": row.headdim,
            "causal": row.causal,
            "input_scale": row.input_scale,
            "value_mean": row.value_mean,
            "status": row.status,
            "reason": row.reason or "",
            "backend": row.backend,
            "counts": point.counts,
            "median_ms": point.time.value if point.time else None,
            "iqr_ms": row.iqr_ms,
            **_columns("tflops", point.rate, point.rates),
            **_columns("speedup", speedup, speedups),
            "err_rel": row.err_rel,
            "err_max": row.err_max,
            "repeats": point.repeats,
            "registers": self._registers(row),
            **self._profiled(row),
            "samples": sum(len(row.samples_ms) for row in point.rows),
            "processes": len({process_of(row) for row in point.rows}),
            "discarded": sum(row.discarded for row in point.rows),
            "requeued": sum(row.requeued or 0 for row in point.rows),
            "late": sum(row.late or 0 for row in point.rows),
            "stale": point.stale,
        }

    def _profiled(self, row: Row) -> dict[str, float | None]:
        """Counters of the very kernel and shape, if those of these sources were recorded."""
        found = None
        if self.profiles and self._are_of(self.profiles, row) and not row.causal:
            shape = (row.batch, row.nheads_q, row.nheads_kv, row.seqlen_q, row.seqlen_k)
            for one in self.profiles.profiles:
                profiled = (one.batch, one.nheads_q, one.nheads_kv, one.seqlen_q, one.seqlen_k)
                if (one.instance, profiled) == (row.backend, shape):
                    found = one
        return {name: counter(found) if found else None for name, counter in PROFILED.items()}

    def _are_of(self, profiles: Profiles, row: Row) -> bool:
        """Whether profiles are of the sources that the row's kernel was compiled from."""
        known, kernel = self.environments, row.backend
        profiled = kernel_hash(known, kernel, profiles.env_hash, profiles.source_hash)
        ran = kernel_hash(known, kernel, row.env_hash, row.source_hash)
        return profiles.source_hash == row.source_hash or (profiled is not None and profiled == ran)

    def _registers(self, row: Row) -> int | None:
        """Registers a thread of the kernel that ran, as compiled for the device."""
        environment = self.environments.get(row.env_hash)
        build = environment.builds.get(row.source_hash) if environment else None
        if not environment or not environment.gpu or not build:
            return None
        device = (environment.gpu.capability or "").replace(".", "")
        compiled = build.kernels.get(row.backend, {})
        own = [costs for arch, costs in compiled.items() if arch.rstrip("a") == device]
        return own[0]["registers"] if own else None


@functools.cache
def _searched(
    kernel: str, d: int, dtype: str, acc: str | None, variants: frozenset[str]
) -> set[str]:
    try:
        return searched_hashes(REPOSITORY, kernel, d, dtype, str(acc), variants)
    except SettingsError:  # the tree no longer has what was searched
        return set()


def recorded_folders() -> list[Path]:
    """Device folders that hold rows: the paper's first, then by name."""
    roots = dict.fromkeys([PAPER_FOLDER.parent, results_dir(), REPRODUCED])
    found = {file.parent for root in roots for file in root.glob("*/*.jsonl")}
    return sorted(found, key=lambda folder: (folder != PAPER_FOLDER, folder))


def contestants_in(frame: pd.DataFrame) -> list[Contestant]:
    """Contestants of a frame, each once, in its order."""
    return list(dict.fromkeys(frame["contestant"]))


def ours(frame: pd.DataFrame) -> pd.DataFrame:
    """The points of this project's kernels."""
    return frame[[entry.is_ours for entry in frame["contestant"]]]


def only(frame: pd.DataFrame, contestant: Contestant) -> pd.DataFrame:
    """The points of one contestant. (pandas would compare a tuple element by element.)"""
    return frame[[entry == contestant for entry in frame["contestant"]]]


def _contestant(row: Row) -> Contestant:
    return Contestant(row.kernel, row.acc, row.variant)


def _run(row: Row) -> tuple[object, ...]:
    return (*process_of(row), row.experiment, row.shape)


def _columns(name: str, estimate: Estimate | None, runs: Runs) -> dict[str, object]:
    value, low, high = estimate[:3] if estimate else (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high, f"{name}_runs": runs}


def shown(path: Path) -> str:
    """A path as a reader of the project types it."""
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else str(path)

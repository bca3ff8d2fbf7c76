"""The typed settings of experiments/run.py: Hydra checks types, `check` ranges and sense."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import Enum
from typing import cast

from hydra.core.config_store import ConfigStore

from ffpa.problem import ACCUMULATORS, MAX_HEADDIM
from ffpa.record.row import AccName

# Of Hydra's own options, those that the next argument belongs to.
OPTIONS_WITH_VALUE = {
    *("--cfg", "-c", "--info", "-i", "--package", "-p"),
    *("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd"),
}


class SettingsError(ValueError):
    """A setting out of range, or two that do not go together; one sentence with the fix."""


class DType(Enum):
    """Element type of query, key, value and output."""

    fp16 = "fp16"
    bf16 = "bf16"


class Device(Enum):
    """auto: the GPU where there is one, else the CPU model of the accumulators."""

    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


@dataclass
class MeasureSettings:
    """How a point is timed. Times of the host in seconds, counts in rounds."""

    label: str = ""  # where set, rows go to the results file <name>-<label>
    max_points: int = 0  # of a sweep, evenly spread; 0: all
    warmup_s: float = 0.5  # launches before the first round, until the clocks have settled
    min_rounds: int = 20
    max_rounds: int = 200
    min_samples: int = 10  # what even a slow contestant gets
    target_rel_ci: float = 0.005  # half-width of the median's 95 % interval over the median
    budget_s: float = 2.0  # a contestant that has used this much sits out the later rounds
    timeout_s: float = 10.0  # of rounds, from when the last slow contestant sat out
    launch_timeout_s: float = 30.0  # a contestant whose launch takes longer is left out
    cold: bool = True  # clear the L2 cache before each sample
    # Time plain matrix products of the same shapes in the same rounds, and for few queries a copy.
    ceiling: bool = True
    square: bool = False  # and one large product, the rate that the device sustains
    oracle_rows: int = 32  # query rows compared with the float64 reference, per head
    input_scale: float = 1.0  # standard deviation of query and key
    value_mean: float = 0.0  # of value, whose standard deviation is 1
    tolerate_wrong: bool = False  # wrong results are the subject, not a failure


@dataclass
class Settings:
    """One point: a shape, and the contestants that take turns on it."""

    name: str = "adhoc"  # of the experiment
    tag: str = ""
    b: int = 1
    h: int = 32
    hkv: int | None = None
    n: int = 8192
    nk: int | None = None
    d: int = 512
    dtype: DType = DType.fp16
    causal: bool = False
    acc: dict[str, bool] = field(default_factory=dict)
    kernels: dict[str, bool] = field(default_factory=dict)
    baselines: dict[str, bool] = field(default_factory=dict)
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    seed: int = 0
    device: Device = Device.auto
    dry_run: bool = False
    resume: bool = False
    stale: bool = False
    results_dir: str | None = None

    @property
    def results_name(self) -> str:
        """Names the results file, and is the experiment of its rows."""
        return f"{self.name}-{self.measure.label}" if self.measure.label else self.name

    @property
    def nheads_kv(self) -> int:
        """Heads of key and value."""
        return self.h if self.hkv is None else self.hkv

    @property
    def seqlen_k(self) -> int:
        """Length of key and value."""
        return self.n if self.nk is None else self.nk


def register() -> None:
    """Tell Hydra the schema that conf/config.yaml builds on."""
    ConfigStore.instance().store(name="schema", node=Settings)


def chosen(switches: dict[str, bool]) -> list[str]:
    """The names switched on, in the order of the configuration."""
    return [name for name, on in switches.items() if on]


def accumulators(settings: Settings) -> list[AccName]:
    """The accumulators switched on."""
    return cast(list[AccName], chosen(settings.acc))


def _in_range(key: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise SettingsError(f"{key}={value} is out of range: give {low} to {high}")


def _check_measure(measure: MeasureSettings) -> None:
    _in_range("measure.max_points", measure.max_points, 0, 1_000_000)
    for key in ("min_rounds", "max_rounds", "min_samples", "oracle_rows"):
        _in_range(f"measure.{key}", getattr(measure, key), 1, 1_000_000)
    for key in ("warmup_s", "budget_s", "timeout_s", "launch_timeout_s"):
        _in_range(f"measure.{key}", getattr(measure, key), 0, 86_400)
    _in_range("measure.target_rel_ci", measure.target_rel_ci, 1e-6, 1)
    # Zeros draw less power than numbers do, and so run at higher clocks: never time them.
    _in_range("measure.input_scale", measure.input_scale, 1e-3, 1e3)
    _in_range("measure.value_mean", measure.value_mean, -1e3, 1e3)
    if measure.min_rounds > measure.max_rounds:
        raise SettingsError(
            f"measure.min_rounds={measure.min_rounds} is above "
            f"measure.max_rounds={measure.max_rounds}: lower the first or raise the second"
        )


def check(settings: Settings) -> None:
    """Raise SettingsError for the first setting that cannot be run."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", settings.results_name):
        raise SettingsError(
            f"{settings.results_name!r} is to name a file: give name and measure.label small "
            "letters, digits, '-' and '_'"
        )
    _in_range("b", settings.b, 1, 65_535)
    _in_range("h", settings.h, 1, 65_535)
    _in_range("hkv", settings.nheads_kv, 1, 65_535)
    _in_range("n", settings.n, 1, 2**24)
    _in_range("nk", settings.seqlen_k, 1, 2**24)
    _in_range("d", settings.d, 8, MAX_HEADDIM)
    _in_range("seed", settings.seed, 0, 2**32 - 1)
    if settings.d % 8:
        raise SettingsError(
            f"d={settings.d} is not a multiple of 8: pad to d={settings.d + -settings.d % 8}"
        )
    if settings.h % settings.nheads_kv:
        raise SettingsError(
            f"h={settings.h} query heads cannot be shared out over hkv={settings.nheads_kv}: "
            "give an hkv that divides h"
        )
    named = chosen(settings.acc)
    for name in named:
        if name not in ACCUMULATORS:
            raise SettingsError(f"acc.{name} is unknown: give one of {', '.join(ACCUMULATORS)}")
    if settings.dtype is DType.bf16 and named and "f32" not in named:
        raise SettingsError(
            f"acc={','.join(named)} with dtype=bf16 has no hardware: give acc=f32 or dtype=fp16"
        )
    _check_measure(settings.measure)


def advise(arguments: list[str], groups: list[str]) -> list[str]:
    """What is wrong with a command line, in words that Hydra does not have; [] if nothing is."""
    keys = [item.name for item in fields(Settings)]
    known = sorted({*keys, *groups})
    advice = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if before in OPTIONS_WITH_VALUE:
            continue
        key, equals, value = argument.partition("=")
        root = key.lstrip("+~").partition("@")[0].split(".")[0].split("/")[0]
        bare = root.lstrip("-")
        if argument.startswith("-"):
            if equals and bare in known:
                advice.append(f"{argument}: settings take no dashes, write {argument.lstrip('-')}")
        elif not key or (not equals and not argument.startswith("~")):
            advice.append(
                f"{argument!r} is not key=value: write for example d=576, without spaces; --help "
                "lists the keys"
            )
        elif value.startswith("="):
            advice.append(f"{argument} has two equals signs: write {key}{value}")
        elif root not in known and root != "hydra":
            near = get_close_matches(root, known, n=1)
            guess = f"did you mean {near[0]}? " if near else ""
            advice.append(f"{root} is no setting: {guess}the settings are {', '.join(known)}")
    return advice


def separate(arguments: list[str], experiments: list[str]) -> list[list[str]]:
    """The command lines that experiment=a,b or experiment=all stands for, one per experiment."""
    for place, argument in enumerate(arguments):
        key, _, value = argument.partition("=")
        if key == "experiment" and (value == "all" or "," in value):
            names = experiments if value == "all" else list(dict.fromkeys(value.split(",")))
            before, after = arguments[:place], arguments[place + 1 :]
            return [[*before, f"experiment={name}", *after] for name in names]
    return [arguments]


def keep_text(arguments: list[str]) -> list[str]:
    """Quote tag=..., which is text even when it looks like a number (1e5 stays 1e5)."""
    quoted = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key == "tag" and not value.startswith(("'", '"')):
            # In Hydra's grammar a backslash is itself unless a quote follows.
            value = "'" + re.sub(r"(\\*)('|$)", _escape, value) + "'"
        quoted.append(key + equals + value)
    return quoted


def _escape(found: re.Match[str]) -> str:
    return 2 * found[1] + ("\\'" if found[2] else "")

"""Search the configuration of a kernel at one shape: `python experiments/tune.py tune=pair-512`.

Every combination of the listed values of a kernels.toml entry is compiled, into an extension of
its own under outputs/, and all of them take turns with the shipped one as contestants of run.py.
Rows go to the results file `tune`, with the fields that a candidate changes as its variant.
resume=true goes on where a search stopped, dry_run=true shows the candidates.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from rich.table import Table

from ffpa.measure.show import console
from ffpa.measure.tuning import (
    Candidate,
    TuneSettings,
    candidates,
    find_kernel,
    shipped_entry,
    write_tree,
)
from ffpa.record import Row, load_rows, results_dir
from ffpa.settings import SettingsError, check, chosen
from ffpa_build.python_path import importing_first

ROOT = Path(__file__).resolve().parent.parent
OURS = ("kernel", "fields", "dry_run", "tune")  # settings that run.py does not know


def build(tree: Path, names: list[str]) -> bool:
    """Whether these instances compile; what did compile is kept for the next build."""
    environ = os.environ | {"FFPA_KERNELS": ";".join(names)}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True)
    if done.returncode:
        said = done.stdout + done.stderr
        errors = [line for line in said.splitlines() if "error" in line]
        print(f"{names[-1]} does not compile: {errors[0] if errors else said[-500:]}")
    return done.returncode == 0


def search(settings: TuneSettings, arguments: list[str]) -> int:
    """Build, measure, and show the result; returns the exit code."""
    acc = chosen(settings.acc)[0]
    kernel = find_kernel(ROOT, settings.kernel)
    entry = shipped_entry(kernel, settings.d, settings.dtype.value, acc)
    trial = candidates(entry, settings.fields)
    if settings.dry_run:
        console().print(candidate_table(entry, trial, settings))
        return 0
    tree = outputs() / "tune" / f"{settings.kernel}-d{settings.d}-{settings.dtype.value}-{acc}"
    write_tree(ROOT, tree, kernel, [entry, *(one.entry for one in trial)])
    stem = f"{settings.kernel}/d{settings.d}/{settings.dtype.value}/{acc}"
    kept = trial
    if not build(tree, [settings.kernel]):  # all at once; only if that fails one by one
        kept = [one for one in trial if build(tree, [f"{stem}/{one.variant}"])]
        write_tree(ROOT, tree, kernel, [entry, *(one.entry for one in kept)])
        if not build(tree, [settings.kernel]):
            return 1
    folder = Path(settings.results_dir or results_dir()).resolve()
    command = [
        sys.executable, "experiments/run.py", "name=tune", "kernels=tune", "baselines=none",
        f"acc={acc}", f"results_dir={folder}", *arguments,
    ]  # fmt: skip
    code = subprocess.run(command, cwd=tree, env=importing_first(tree / "src")).returncode
    rows = [row for path in folder.glob("*/tune.jsonl") for row in load_rows(path)]
    console().print(winner(settings, [one.variant for one in kept], rows))
    return code


def winner(settings: TuneSettings, variants: list[str], rows: list[Row]) -> str:
    """The fastest configuration of the latest run of this search."""
    point = (settings.kernel, settings.d, settings.dtype.value)
    timed = [
        row
        for row in rows
        if (row.kernel, row.headdim, row.dtype) == point
        and row.variant in ("", *variants)
        and row.status == "ok"
    ]
    if not timed:
        return "no candidate was timed"
    latest = [row for row in timed if row.run_id == timed[-1].run_id]
    best = max(latest, key=lambda row: row.tflops or 0.0)
    return f"fastest: {best.variant or 'the shipped one'} with {best.tflops:.1f} TFLOP/s"


def candidate_table(
    entry: dict[str, object], trial: list[Candidate], settings: TuneSettings
) -> Table:
    """One line per configuration, the shipped one first."""
    table = Table(title=f"{settings.kernel} d={settings.d}", title_justify="left")
    for name in ("variant", *settings.fields):
        table.add_column(name)
    for variant, values in [("", entry), *((one.variant, one.entry) for one in trial)]:
        table.add_row(variant or "(shipped)", *(str(values.get(f)) for f in settings.fields))
    return table


def for_run(arguments: list[str]) -> list[str]:
    """What of the command line run.py knows too."""
    roots = [a.lstrip("+~").partition("=")[0].partition(".")[0] for a in arguments]
    return [a for a, root in zip(arguments, roots, strict=True) if root not in OURS]


def outputs() -> Path:
    """Where builds go."""
    return Path(os.environ.get("FFPA_OUTPUTS", str(ROOT / "outputs"))).resolve()


def main(arguments: list[str]) -> int:
    """Compose the settings with Hydra, then search."""
    ConfigStore.instance().store(name="tune_schema", node=TuneSettings)
    OmegaConf.register_new_resolver("ffpa_outputs", lambda: str(outputs()))
    OmegaConf.register_new_resolver("ffpa_pid", os.getpid)
    codes = []

    @hydra.main(version_base="1.3", config_path="../conf", config_name="tune")
    def collect(config: DictConfig) -> None:
        settings: Any = OmegaConf.to_object(config)
        try:
            check(settings)
            point = [f"d={settings.d}", f"dtype={settings.dtype.value}"]
            codes.append(search(settings, [*point, *for_run(arguments)]))
        except SettingsError as error:
            print(f"failed: {error}", file=sys.stderr)
            codes.append(1)

    collect()
    return max(codes, default=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

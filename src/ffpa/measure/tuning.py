"""Candidate configurations of a kernel: which there are, and a source tree that compiles them."""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from ffpa.record import Row
from ffpa.settings import Settings, SettingsError
from ffpa_build.sources import source_hash

# What a build and a measurement need of the repository.
PARTS = ("csrc", "src", "conf", "experiments/run.py", "pyproject.toml", "setup.py")


@dataclass
class TuneSettings(Settings):
    """A point, the kernel whose configuration is searched there, and the values to try."""

    kernel: str = ""  # the id in csrc/kernels.toml
    # Fields of its entries; the lists multiply out. Of the shipped entry stays what is not named.
    fields: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """One entry for kernels.toml, under a name made of what it changes."""

    variant: str
    entry: dict[str, Any]


def shipped_entry(kernel: Mapping[str, Any], d: int, dtype: str, acc: str) -> dict[str, Any]:
    """The entry of a kernel that serves a point; SettingsError where there is none."""
    for entry in kernel["config"]:
        listed = {key: _as_list(entry[key]) for key in ("headdim", "dtype", "acc")}
        exact = d in listed["headdim"] and dtype in listed["dtype"] and acc in listed["acc"]
        if exact and not entry.get("variant"):
            return {**entry, "headdim": d, "dtype": dtype, "acc": acc}
    raise SettingsError(
        f"kernels.toml has no entry of {kernel['id']} for d={d} dtype={dtype} acc={acc}: "
        "give a compiled head dimension and what it is compiled for"
    )


def candidates(entry: Mapping[str, Any], fields: Mapping[str, Sequence[Any]]) -> list[Candidate]:
    """All combinations of the fields' values, but the shipped one."""
    found = []
    for values in product(*fields.values()):
        changed = {
            name: value
            for name, value in zip(fields, values, strict=True)
            if entry.get(name) != value
        }
        if changed:
            variant = "-".join(f"{name}{value}".lower() for name, value in changed.items())
            found.append(Candidate(variant, {**entry, **changed, "variant": variant}))
    return found


def find_kernel(root: Path, kernel: str) -> dict[str, Any]:
    """The table of a kernel in the list of a source tree."""
    document = tomllib.loads((root / "csrc/kernels.toml").read_text())
    for table in document["kernel"]:
        if table["id"] == kernel:
            return dict(table)
    known = ", ".join(table["id"] for table in document["kernel"])
    raise SettingsError(f"kernel={kernel!r} is not in kernels.toml: give one of {known}")


def write_tree(
    root: Path, target: Path, kernel: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
) -> None:
    """A copy of the tree whose list of kernels has these entries of one kernel only."""
    for part in PARTS:
        source, copy = root / part, target / part
        if source.is_dir():
            skip = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
            shutil.copytree(source, copy, dirs_exist_ok=True, ignore=skip)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    (target / "csrc/kernels.toml").write_text("".join(_toml({**kernel, "config": entries})))
    switches = {"/".join(filter(None, (kernel["id"], e.get("variant")))): True for e in entries}
    (target / "conf/kernels/tune.yaml").write_text(
        "# Written by experiments/tune.py.\n"
        + "".join(f"{name}: {json.dumps(on)}\n" for name, on in switches.items())
    )


def searches(root: Path, kernel: str, d: int, dtype: str) -> dict[str, dict[str, list[Any]]]:
    """The fields of each search of conf/tune/ at a point, by its name."""
    files = sorted((root / "conf/tune").glob("*.yaml"))
    found = {file.stem: yaml.safe_load(file.read_text()) for file in files}
    default = Settings.dtype.value
    return {
        name: search["fields"]
        for name, search in found.items()
        if (search["kernel"], search["d"], search.get("dtype", default)) == (kernel, d, dtype)
    }


def search_command(root: Path, recorded: str, row: Row) -> str:
    """The search behind a command of run.py, which itself works in that search's own tree only."""
    names = list(searches(root, row.kernel, row.headdim, row.dtype))
    if not names:
        return f"{recorded}  # in the tree of a search that conf/tune no longer has"
    given = {"name", "kernels", "baselines", "results_dir", "d", "dtype"}  # by tune.py itself
    if row.acc == "f32":
        given.add("acc")  # as conf/tune.yaml has it
    _, *arguments = recorded.split()
    kept = [one for one in arguments if one.partition("=")[0] not in given]
    return " ".join(["experiments/tune.py", f"tune={names[0]}", *kept])


def searched_hashes(
    root: Path, kernel: str, d: int, dtype: str, acc: str, variants: Collection[str]
) -> set[str]:
    """Hashes of the sources that the tree's searches at a point compile now.

    `variants` are the candidates to compile, as those that did are in the rows. Empty where no file
    of conf/tune/ searches there: what was searched with other fields cannot be made anew.
    """
    found = set()
    for fields in searches(root, kernel, d, dtype).values():
        table = find_kernel(root, kernel)
        entry = shipped_entry(table, d, dtype, acc)
        trial = [one for one in candidates(entry, fields) if one.variant in variants]
        with tempfile.TemporaryDirectory() as folder:
            write_tree(root, Path(folder), table, [entry, *(one.entry for one in trial)])
            found.add(source_hash(Path(folder)))
    return found


def _toml(kernel: Mapping[str, Any]) -> Iterator[str]:
    """A [[kernel]] table; its values are strings, numbers, booleans and lists of them."""
    yield "[[kernel]]\n"
    yield from _pairs({key: value for key, value in kernel.items() if key != "config"})
    for entry in kernel["config"]:
        yield "\n[[kernel.config]]\n"
        yield from _pairs(entry)


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}\n"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]

"""From kernels.toml to ffpa._C: writes what ninja needs, runs it, gives the module to setuptools.

There is no wheel without the compiled module: a build that fails ends the installation.
"""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import setuptools
from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

from . import generate, manifest
from .build_info import counted
from .errors import BuildError
from .flags import nvcc_flags
from .host import find_compiler
from .jobs import job_count
from .options import Options
from .plan import Folder, ninja_text
from .python_path import importing_first
from .sources import kernel_hashes, source_hash
from .toolchain import Toolchain, find_toolchain

ROOT = Path(__file__).resolve().parents[2]
OLDEST_SETUPTOOLS = 77  # as pyproject.toml says; without build isolation nobody else checks it


def build_module(version: str) -> Path:
    """Compile what changed since the last build; the path of the shared library."""
    options = Options.from_environ(os.environ)
    tools = find_toolchain(options)
    selection = manifest.select(
        manifest.load(ROOT), options.archs, options.kernels, options.test_archs
    )
    flags = nvcc_flags(options.debug_barriers)
    jobs = job_count()
    archs = sorted({arch for _, kept in selection for arch in kept})
    print(
        f"ffpa: nvcc {tools.nvcc.version} ({tools.nvcc.path}), {tools.cxx.family} "
        f"{tools.cxx.version}, architectures {' '.join(archs)}, "
        f"{counted(len(selection), options.kernels, options.debug_barriers)}, {jobs} at a time",
        flush=True,
    )
    folder = Folder(ROOT / "build/ffpa" / tools.cxx.target)
    with _locked(folder.path):
        facts = _facts(tools, selection, folder) | {
            "archs": archs,
            "debug_barriers": options.debug_barriers,
            "flags": flags,
            "kernel_filter": options.kernels,
            "kernel_hashes": kernel_hashes(
                ROOT, (instance for instance, _ in selection), options.debug_barriers
            ),
            "source_hash": source_hash(ROOT, options.debug_barriers),
            "version": version,
        }
        _write_inputs(folder, tools, flags, selection, facts)
        _run_ninja(tools, folder.path, jobs)
    return folder.module


def _write_inputs(
    folder: Folder,
    tools: Toolchain,
    flags: Sequence[str],
    selection: generate.Selection,
    facts: dict[str, object],
) -> None:
    write = generate.write_if_changed
    units = generate.units(selection)
    for unit in units:
        write(folder.source(unit), unit.source)
    write(folder.registry, generate.registry_source(selection))
    write(folder.facts, json.dumps(facts, sort_keys=True, indent=1))
    write(folder.path / "build.ninja", ninja_text(ROOT, folder, tools, flags, units))


def _facts(tools: Toolchain, selection: generate.Selection, folder: Folder) -> dict[str, object]:
    """What build_info() says of tools and sources before anything is compiled."""
    return {
        "host_compiler": f"{tools.cxx.family} {tools.cxx.version}",
        "logs": {instance.name: str(folder.log(instance)) for instance, _ in selection},
        "nvcc_version": tools.nvcc.version,
        "sass": {instance.name: instance.sass for instance, _ in selection},
        "target": tools.cxx.target,
    }


def _run_ninja(tools: Toolchain, folder: Path, jobs: int) -> None:
    command = [str(tools.ninja), "-C", str(folder), "-j", str(jobs)]
    if subprocess.run(command, env=importing_first(ROOT / "src")).returncode:
        raise BuildError("compiling failed: the compiler's message is above")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for another build in the same folder, which ninja does not do."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def _cross_cpu() -> str | None:
    """The processor to build for if it is another than this machine's."""
    chosen = os.environ.get("FFPA_HOST_CXX")
    return find_compiler(chosen).cross_cpu if chosen else None


class BuildExtension(build_ext):  # type: ignore[misc]  # setuptools is untyped
    """setuptools' build_ext with nvcc and ninja behind it."""

    def build_extension(self, ext: Extension) -> None:
        try:
            module = build_module(self.distribution.get_version())
        except BuildError as error:
            raise CompileError(f"ffpa: {error}") from None
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(module, target)

    def get_ext_filename(self, fullname: str) -> str:
        name: str = super().get_ext_filename(fullname)
        return name.replace(platform.machine(), _cross_cpu() or platform.machine())


def commands() -> dict[str, type[Any]]:
    """setup()'s cmdclass; first tells Python of a cross build, which names folders and wheel."""
    if int(setuptools.__version__.split(".")[0]) < OLDEST_SETUPTOOLS:
        sys.exit(
            f"error: ffpa: setuptools {setuptools.__version__} cannot read pyproject.toml: "
            f"pip install 'setuptools>={OLDEST_SETUPTOOLS}'"
        )
    try:
        cpu = _cross_cpu()
    except BuildError as error:
        sys.exit(f"error: ffpa: {error}")
    if cpu:
        os.environ["_PYTHON_HOST_PLATFORM"] = f"linux-{cpu}"
    return {"build_ext": BuildExtension}

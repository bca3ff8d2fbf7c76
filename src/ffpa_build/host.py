"""The host side of the build: C++ compiler, Python headers, pybind11, ninja."""

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import BuildError
from .nvcc import Nvcc

OLDEST_GCC = 10  # the first with what the code uses of C++20


@dataclass(frozen=True)
class Compiler:
    """The C++ compiler that nvcc calls too."""

    path: str
    family: str  # "gcc" or "clang"
    version: str  # "12.2.0"
    target: str  # "x86_64-linux-gnu"

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def cross_cpu(self) -> str | None:
        """The processor it compiles for, as in "aarch64", if it is not this machine's."""
        cpu = self.target.split("-")[0]
        return None if cpu == platform.machine() else cpu

    @property
    def links_libstdcxx_statically(self) -> bool:
        """Whether libstdc++.a is installed; it frees the module from the machine's libstdc++."""
        return Path(_run(self.path, "-print-file-name=libstdc++.a").strip()).is_absolute()


def find_compiler(chosen: str | None, environ: Mapping[str, str] = os.environ) -> Compiler:
    """The compiler `chosen`, else of NVCC_CCBIN, CXX or g++; BuildError where it does not run."""
    name = chosen or environ.get("NVCC_CCBIN") or environ.get("CXX") or "g++"
    path = shutil.which(name, path=environ.get("PATH", ""))
    if not path:
        raise BuildError(
            f"the C++ compiler {name!r} is not an executable: install g++, or set FFPA_HOST_CXX "
            "to the name or path of one compiler, without arguments"
        )
    predefined = _run(path, "-dM", "-E", "-x", "c++", os.devnull)
    macros = dict(re.findall(r"#define (\w+) (.*)", predefined))
    if "__clang__" in macros:
        family, parts = "clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    else:
        family, parts = "gcc", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    version = ".".join(macros.get(part, "0") for part in parts)
    return Compiler(path, family, version, _run(path, "-dumpmachine").strip())


def require_accepted(compiler: Compiler, nvcc: Nvcc) -> None:
    """BuildError when this nvcc rejects this compiler: its own message comes late and is long."""
    header = nvcc.include / "crt/host_config.h"
    limits = header.read_text() if header.exists() else ""
    pattern = r"__GNUC__ > (\d+)" if compiler.family == "gcc" else r"__clang_major__ >= (\d+)"
    found = re.search(pattern, limits)
    if not found:
        return
    newest = int(found[1]) - (compiler.family == "clang")
    name = "g++" if compiler.family == "gcc" else "clang++"
    if compiler.major > newest:
        raise BuildError(
            f"{compiler.path} is {compiler.family} {compiler.version}, newer than nvcc "
            f"{nvcc.version} accepts: install {name}-{newest} (the newest accepted) or older and "
            f"set FFPA_HOST_CXX={name}-{newest}"
        )
    if compiler.family == "gcc" and compiler.major < OLDEST_GCC:
        raise BuildError(
            f"{compiler.path} is gcc {compiler.version}, which lacks C++20: install one from "
            f"g++-{OLDEST_GCC} to g++-{newest} and name it in FFPA_HOST_CXX"
        )


def python_include(chosen: str | None) -> list[Path]:
    """The folders of Python.h and pybind11's headers; BuildError names what is missing."""
    folders = [Path(folder) for folder in (chosen or sysconfig.get_path("include")).split(":")]
    if not any((folder / "Python.h").exists() for folder in folders):
        version = sysconfig.get_python_version()
        raise BuildError(
            f"Python.h is not in {folders[0]}: install the headers of Python {version} "
            f"(Debian, Ubuntu: apt-get install python{version}-dev)"
        )
    try:
        import pybind11
    except ModuleNotFoundError:
        raise BuildError("pybind11 is not installed: pip install pybind11") from None
    return [*folders, Path(pybind11.get_include())]


def find_ninja() -> Path:
    """ninja, of its wheel or on the PATH; BuildError where there is neither."""
    try:
        import ninja
    except ModuleNotFoundError:
        on_path = shutil.which("ninja")
        if not on_path:
            raise BuildError("ninja is not installed: pip install ninja") from None
        return Path(on_path)
    return Path(ninja.BIN_DIR) / "ninja"


def _run(program: str, *arguments: str) -> str:
    try:
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(
            f"the C++ compiler {program} does not run ({error}): set FFPA_HOST_CXX to one that does"
        ) from None

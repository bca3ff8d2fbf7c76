"""Finding a CUDA compiler: a toolkit on this machine, else the compiler wheels."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .errors import BuildError

OLDEST = (12, 4)
SYSTEM_NVCC = Path("/usr/local/cuda/bin/nvcc")
SYSTEM_INCLUDE, SYSTEM_LIBS = Path("/usr/include"), Path("/usr/lib")  # of Debian's own package

# A complete CUDA 13.0 compiler under site-packages/nvidia/cu13, with a file that shows each is in.
WHEELS = {
    "nvidia-cuda-nvcc==13.0.88": "bin/nvcc",
    "nvidia-nvvm==13.0.88": "nvvm/bin/cicc",
    "nvidia-cuda-crt==13.0.88": "include/crt/host_config.h",
    "nvidia-cuda-runtime==13.0.96": "lib/libcudart_static.a",
    "nvidia-cuda-cccl==13.0.85": "include/cccl/nv/target",
}


@dataclass(frozen=True)
class Nvcc:
    """An nvcc and the toolkit around it, wherever wrapper scripts and links hide that."""

    path: Path

    @cached_property
    def version(self) -> str:
        """As in "13.0.88"."""
        match = re.search(r"\bV(\d+\.\d+\.\d+)", _output(self.path, "--version"))
        if not match:
            raise BuildError(f"{self.path} --version names no version: set NVCC to a working nvcc")
        return match[1]

    @property
    def is_new_enough(self) -> bool:
        return tuple(map(int, self.version.split(".")[:2])) >= OLDEST

    @cached_property
    def include(self) -> Path:
        """The folder of cuda_runtime_api.h."""
        return self._folder_with("cuda_runtime_api.h", "-I", ["include"], [SYSTEM_INCLUDE])

    @cached_property
    def lib(self) -> Path:
        """The folder of libcudart_static.a: lib64 in a toolkit, lib in the wheels."""
        system = SYSTEM_LIBS.glob("*-linux-gnu")
        return self._folder_with("libcudart_static.a", "-L", ["lib64", "lib"], system)

    @cached_property
    def _plan(self) -> str:
        """What nvcc would do and where it looks: it knows its toolkit even behind a script."""
        return _output(self.path, "--dryrun", "-c", "-x", "cu", os.devnull, "-o", os.devnull)

    def _folder_with(self, file: str, flag: str, below: list[str], system: Iterable[Path]) -> Path:
        top = re.search(r"^#\$ TOP=(.*)$", self._plan, re.MULTILINE)
        root = Path(top[1].strip()) if top else self.path.parent.parent
        named = map(Path, re.findall(rf'"{flag}([^"]+)"', self._plan))
        for folder in [*named, *(root / name for name in below), *system]:
            if (folder / file).exists():
                return Path(os.path.normpath(folder))
        raise BuildError(
            f"{file} is not in the toolkit of {self.path} ({os.path.normpath(root)}): "
            "install the CUDA runtime's development files of the same version"
        )


def find_nvcc(environ: Mapping[str, str] = os.environ) -> Nvcc:
    """NVCC, else the first new enough of CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda, the wheels.

    Raises BuildError where there is none, or where NVCC is not a usable one.
    """
    if named := environ.get("NVCC"):
        found = shutil.which(named, path=environ.get("PATH", ""))
        if not found:
            raise BuildError(f"NVCC={named} is not an executable: set it to an nvcc, or unset it")
        nvcc = Nvcc(Path(found))
        if not nvcc.is_new_enough:
            raise _too_old(nvcc)
        return nvcc
    too_old = None
    for path in _candidates(environ):
        nvcc = Nvcc(path)
        if nvcc.is_new_enough:
            return nvcc
        too_old = too_old or nvcc
    if too_old:
        raise _too_old(too_old)
    raise BuildError(
        "no nvcc in NVCC, CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda: install a CUDA toolkit "
        f"(12.4 or newer), or its compiler as wheels: pip install {' '.join(WHEELS)}"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := environ.get(variable):
            yield from _executable(Path(home) / "bin/nvcc")
    if on_path := shutil.which("nvcc", path=environ.get("PATH", "")):
        yield Path(on_path)
    yield from _executable(SYSTEM_NVCC)
    for site in sys.path:
        root = Path(site) / "nvidia/cu13"
        if all((root / proof).exists() for proof in WHEELS.values()):
            yield root / "bin/nvcc"


def _executable(path: Path) -> list[Path]:
    return [path] if os.access(path, os.X_OK) else []


def _too_old(nvcc: Nvcc) -> BuildError:
    return BuildError(
        f"nvcc {nvcc.version} ({nvcc.path}) is too old, 12.4 is the oldest that works: set NVCC "
        f"to a newer one, or install the compiler as wheels: pip install {' '.join(WHEELS)}"
    )


def _output(program: Path, *arguments: str) -> str:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"{program} does not run ({error}): set NVCC to a working nvcc") from None
    return done.stdout + done.stderr

"""All tools of a build, found and checked before the first compiler runs.

`python -m ffpa_build.toolchain --requirements` prints what pip must install for a build without
isolation, on one line: the compiler wheels, or nothing where an nvcc is found.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from . import host
from .errors import BuildError
from .nvcc import WHEELS, Nvcc, find_nvcc
from .options import Options


@dataclass(frozen=True)
class Toolchain:
    """Programs and folders of one build."""

    nvcc: Nvcc
    cxx: host.Compiler
    ninja: Path
    cuda_lib: Path
    python_include: list[Path]


def find_toolchain(options: Options) -> Toolchain:
    """The tools for a build on this machine; BuildError names the first that is missing."""
    nvcc = find_nvcc()
    cxx = host.find_compiler(options.host_cxx)
    host.require_accepted(cxx, nvcc)
    if cxx.cross_cpu and not (options.cuda_lib and options.python_include):
        raise BuildError(
            f"{cxx.path} compiles for {cxx.cross_cpu}: set FFPA_CUDA_LIB and FFPA_PYTHON_INCLUDE "
            "to that machine's CUDA libraries and Python headers"
        )
    return Toolchain(
        nvcc=nvcc,
        cxx=cxx,
        ninja=host.find_ninja(),
        cuda_lib=Path(options.cuda_lib) if options.cuda_lib else nvcc.lib,
        python_include=host.python_include(options.python_include),
    )


def missing_requirements() -> list[str]:
    """What pip must install to have a compiler: nothing where there is a usable nvcc."""
    try:
        find_nvcc()
    except BuildError:
        return list(WHEELS)
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description="Shows the tools that a build would use.")
    parser.add_argument("--requirements", action="store_true", help="print what pip must install")
    if parser.parse_args().requirements:
        print(*missing_requirements())
        return
    try:
        tools = find_toolchain(Options())
    except BuildError as error:
        sys.exit(f"error: {error}")
    print(f"nvcc {tools.nvcc.version} ({tools.nvcc.path}), CUDA libraries in {tools.cuda_lib}")
    print(f"{tools.cxx.family} {tools.cxx.version} ({tools.cxx.path}), ninja ({tools.ninja})")


if __name__ == "__main__":
    main()

"""Which command makes which file of a build, as a build.ninja."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .flags import CXX_FLAGS, gencode
from .generate import Unit
from .manifest import Instance
from .ninja import NinjaFile
from .toolchain import Toolchain


@dataclass(frozen=True)
class Folder:
    """Where the files of one build lie."""

    path: Path

    @property
    def module(self) -> Path:
        return self.path / "_C.so"

    @property
    def facts(self) -> Path:
        return self.path / "gen/facts.json"

    @property
    def registry(self) -> Path:
        return self.path / "gen/registry.cpp"

    @property
    def build_info(self) -> Path:
        return self.path / "gen/build_info.cpp"

    def source(self, unit: Unit) -> Path:
        return self.path / "gen" / f"{unit.stem}.cu"

    def object(self, stem: str) -> Path:
        return self.path / "obj" / f"{stem}.o"

    def log(self, instance: Instance) -> Path:
        """What the compilers, ptxas above all, said of an instance and those in its unit."""
        return self.path / "obj" / f"{instance.unit}.o.log"


def ninja_text(
    root: Path, folder: Folder, tools: Toolchain, flags: Sequence[str], units: Sequence[Unit]
) -> str:
    """The build.ninja of the extension: one nvcc call per unit, for all its architectures."""
    ninja = NinjaFile()
    _rules(ninja, root, tools, flags)
    hosts = []  # first, because bindings.cpp takes the longest of all
    for source in (root / "csrc/bindings.cpp", folder.registry, folder.build_info):
        hosts.append(folder.object(source.stem))
        ninja.build(hosts[-1], "cxx", [source])
    kernels = []
    for unit in units:
        kernels.append(folder.object(unit.stem))
        name = f"{unit.stem} ({len(unit.instances)} of {unit.instances[0].id})"
        variables = {"name": name, "archs": " ".join(gencode(unit.archs))}
        ninja.build(kernels[-1], "nvcc", [folder.source(unit)], variables=variables)
    # The logs are no outputs for ninja, but each is there once its object is.
    ninja.build(folder.build_info, "build_info", [folder.facts], implicit=kernels)
    ninja.build(folder.module, "link", [*hosts, *kernels])
    return ninja.text()


def _rules(ninja: NinjaFile, root: Path, tools: Toolchain, flags: Sequence[str]) -> None:
    logged = [sys.executable, "-m", "ffpa_build.compile", "$out.log"]
    cuda_includes = [f"-I{root / 'csrc'}", f"-I{tools.nvcc.include}"]
    python_includes = [f"-isystem{folder}" for folder in tools.python_include]
    one_file = ["-MD", "-MT", "$out", "-MF", "$out.d", "-c", "$in", "-o", "$out"]
    nvcc = [str(tools.nvcc.path), "-ccbin", tools.cxx.path, *flags, "$archs"]
    ninja.rule(
        "nvcc",
        [*logged, *nvcc, *cuda_includes, *one_file],
        deps="gcc",
        depfile="$out.d",
        description="nvcc $name",
    )
    ninja.rule(
        "cxx",
        [*logged, tools.cxx.path, *CXX_FLAGS, *cuda_includes, *python_includes, *one_file],
        deps="gcc",
        depfile="$out.d",
        description="c++ $in",
    )
    ninja.rule(
        "build_info",
        [sys.executable, "-m", "ffpa_build.build_info", "$in", "$out"],
        description="what ptxas reported",
    )
    ninja.rule("link", [*logged, *_link(tools)], description="link $out")


def _link(tools: Toolchain) -> list[str]:
    command = [tools.cxx.path, "-shared", "-Wl,--exclude-libs,ALL", "-Wl,--as-needed"]
    command += ["$in", "-o", "$out", f"-L{tools.cuda_lib}"]
    command += ["-lcudart_static", "-lrt", "-lpthread", "-ldl"]
    if tools.cxx.links_libstdcxx_statically:
        command.append("-static-libstdc++")
    return command

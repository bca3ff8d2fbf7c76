"""Does the machine code hold what was meant? `python -m ffpa_build.check [EXTENSION.so]`.

Checks the built extension (the one that Python would import, unless a file is given) against its
own build info: every architecture is in it, every kernel has the instructions that kernels.toml
names, its matrix instructions have the accumulator meant, and nothing spills. Needs no GPU.

Tile sizes are chosen for one compiler, and another may spill a few bytes: slower, not wrong. So an
image, whose base brings the compiler, is checked with --allow-spills, which warns.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import IO, Any

from . import build_info
from .errors import BuildError

# Names of instructions by (architecture, mangled name of the kernel): {"HMMA.16816.F32", …}.
Code = dict[tuple[str, str], set[str]]

MATRIX = ("HMMA", "HGMMA")
ACCUMULATORS = {
    "f32": {"F32"},
    "f16": {"F16"},
    "f16f32": {"F16"},  # the flush into F32 is made of additions
    "qk32_pv16": {"F16", "F32"},
    "qk16_pv32": {"F16", "F32"},
}
# F16 scores would round what a mask adds.
WITH_MASK_ON_HOPPER = {"f16": "qk32_pv16"}

ARCH = re.compile(r"^\s*code for sm_(\w+)")
FUNCTION = re.compile(r"^\s*Function : (\w+)")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)")


def parse(listing: Iterable[str]) -> Code:
    """The instructions that occur in the lines of `cuobjdump -sass`."""
    code: Code = {}
    arch, current = "", set[str]()
    for line in listing:
        if match := INSTRUCTION.match(line):
            current.add(match[1])
        elif match := FUNCTION.match(line):
            current = code.setdefault((arch, match[1]), set())
        elif match := ARCH.match(line):
            arch = match[1]
    return code


def spills(info: dict[str, Any]) -> Iterator[str]:
    """One sentence for each kernel that spills registers."""
    for name, by_arch in info["kernels"].items():
        for arch, resources in by_arch.items():
            if spilled := resources["spill_bytes"]:
                yield f"{name} on sm_{arch} spills {spilled} bytes of registers"


def problems(info: dict[str, Any], code: Code) -> Iterator[str]:
    """One sentence for each thing in the machine code that is not as meant."""
    embedded = {arch for arch, _ in code}
    for arch in info["archs"]:
        if arch not in embedded:
            yield f"sm_{arch} was asked for, but no machine code for it is in the extension"
    for name, by_arch in info["kernels"].items():
        for arch, resources in by_arch.items():
            where = f"{name} on sm_{arch}"
            instructions = code.get((arch, resources["entry"]))
            if instructions is None:
                yield f"{where} has no machine code in the extension"
            else:
                sass = info["sass"][name]
                acc = name.split("/")[3]
                if name.endswith("/masked") and "HGMMA" in sass:
                    acc = WITH_MASK_ON_HOPPER.get(acc, acc)
                for text in _instruction_problems(sass, acc, instructions):
                    yield f"{where} {text}"


def _instruction_problems(meant: list[str], acc: str, found: set[str]) -> Iterator[str]:
    families = {instruction.split(".")[0] for instruction in found}
    for family in meant:
        if family not in families:
            yield f"has no {family} instruction"
    for family in MATRIX:
        if family in families and family not in meant:
            yield f"has {family} instructions, which kernels.toml does not name"
    accumulators = _accumulators(found)
    if accumulators and accumulators != ACCUMULATORS[acc]:
        yield (
            f"accumulates in {' and '.join(sorted(accumulators))}, "
            f"but acc={acc} means {' and '.join(sorted(ACCUMULATORS[acc]))}"
        )


def _accumulators(instructions: set[str]) -> set[str]:
    """F16, F32: the field after the shape, as in HMMA.16816.F32.BF16 and HGMMA.64x128x16.F16."""
    parts = (instruction.split(".") for instruction in instructions)
    return {part[2] for part in parts if part[0] in MATRIX}


def table(info: dict[str, Any]) -> Iterator[str]:
    """Lines of a table: kernels by id, accumulator and architecture, with what ptxas reported."""
    rows: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for name, by_arch in info["kernels"].items():
        kernel, _, dtype, acc, *_ = name.split("/")
        for arch, resources in by_arch.items():
            rows.setdefault((kernel, dtype, acc, arch), []).append(resources)
    yield "kernel                 dtype acc        arch  count registers stack"
    for (kernel, dtype, acc, arch), found in sorted(rows.items()):
        registers = sorted(resources["registers"] for resources in found)
        span = f"{registers[0]}-{registers[-1]}"
        stack = max(resources["stack_bytes"] for resources in found)
        yield f"{kernel:22} {dtype:5} {acc:10} {arch:5} {len(found):5} {span:>9} {stack:5}"


def disassemble(extension: Path) -> Code:
    """The instructions of all kernels in an extension; its architectures side by side."""
    program = _cuobjdump()
    with _output(program, "-lelf", extension) as files:
        archs = set(re.findall(r"\.sm_(\w+)\.cubin", files.read()))

    def of_arch(arch: str) -> Code:
        with _output(program, "-arch", f"sm_{arch}", "-sass", extension) as listing:
            return parse(listing)

    with ThreadPoolExecutor() as pool:
        return {key: found for code in pool.map(of_arch, archs) for key, found in code.items()}


@contextmanager
def _output(*command: str | Path) -> Iterator[IO[str]]:
    """What a program prints, to be read while it runs; BuildError if it fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout
    if process.returncode:
        raise BuildError(f"{' '.join(map(str, command))} failed: its message is above")


def _cuobjdump() -> str:
    """cuobjdump of the PATH, a toolkit, or its wheel."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [Path(home) / "bin" for home in homes if home]
    folders += [Path(site) / "nvidia/cu13/bin" for site in sys.path]
    search = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    found = shutil.which("cuobjdump", path=search)
    if not found:
        raise BuildError(
            "no cuobjdump in PATH or CUDA_HOME: install a CUDA toolkit, or "
            "pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
        )
    return found


def _built_extension() -> Path:
    for site in sys.path:
        for suffix in EXTENSION_SUFFIXES:
            path = Path(site) / f"ffpa/_C{suffix}"
            if path.exists():
                return path
    raise BuildError("the extension ffpa._C is not built: pip install -e . first")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("extension", type=Path, nargs="?", help="default: the one Python imports")
    parser.add_argument("--allow-spills", action="store_true", help="warn of them only")
    options = parser.parse_args()
    try:
        extension = options.extension or _built_extension()
        info = build_info.read(extension)
        found = list(problems(info, disassemble(extension)))
    except (BuildError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(*table(info), sep="\n")
    for name, texts in info["warnings"].items():
        print(*(f"warning: {name}: {text}" for text in texts), sep="\n", file=sys.stderr)
    spilling = list(spills(info))
    for text in spilling:
        print(f"{'warning' if options.allow_spills else 'error'}: {text}", file=sys.stderr)
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    if found or (spilling and not options.allow_spills):
        sys.exit(1)
    count = f"{len(spilling)} of them spill" if spilling else "no spills"
    built = build_info.described(info)
    print(f"{built}: instructions and accumulators as meant, {count}")


if __name__ == "__main__":
    main()

"""Hashes of what decides: what the kernels compute and how fast, and what a recorded check saw."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from .flags import nvcc_flags
from .manifest import Instance, with_includes

SUFFIXES = {".h", ".cuh", ".cu", ".cpp", ".toml"}


# Files that decide what a check on a GPU looks at, by the name of what it records.
CHECKS = {
    "gpu_tests": (
        "tests/conftest.py",
        "tests/gpu/conftest.py",
        "tests/gpu/harness.py",
        "tests/gpu/test_*.py",
    ),
    "gpu_fuzz": ("tests/gpu/harness.py", "tests/gpu/fuzz.py"),
    "gpu_sanitizer": ("tests/gpu/harness.py", "tests/gpu/fuzz.py", "tests/gpu/sanitize.py"),
}


def source_files(root: Path) -> list[Path]:
    """The files under csrc/ that count, sorted by their path."""
    return sorted(path for path in (root / "csrc").rglob("*") if path.suffix in SUFFIXES)


def source_hash(root: Path, debug_barriers: bool = False) -> str:
    """SHA-256 (hex) over the paths and contents of csrc/ and the nvcc flags of the tree `root`.

    Architectures, compiler version and paths do not count: they are recorded beside the hash. A
    debug build has a hash of its own, so that its rows are stale wherever others are not.
    """
    digest = _of_files(root, source_files(root))
    digest.update("\0".join(nvcc_flags(debug_barriers)).encode())
    return digest.hexdigest()


def kernel_hashes(
    root: Path, instances: Iterable[Instance], debug_barriers: bool = False
) -> dict[str, str]:
    """By an instance's name, SHA-256 (hex) over what it alone is compiled from in the tree `root`.

    That is its configuration, the headers that its kernel and a launch include, and nvcc's flags:
    what was measured of it holds as long as they do, whatever becomes of other kernels.
    """
    folder = root / "csrc"
    code: dict[str, str] = {}
    hashes = {}
    for one in instances:
        if one.header not in code:
            files = (one.header, "launch.cuh", "bindings.cpp")
            texts = [text for file in files for text in with_includes(one.id, folder, file, set())]
            code[one.header] = "\0".join(texts)
        parts = (code[one.header], one.template, repr(one.fields), *nvcc_flags(debug_barriers))
        hashes[one.name] = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return hashes


def checks_hash(root: Path, kind: str) -> str:
    """SHA-256 (hex) over the paths and contents of a check's files, `kind` of CHECKS."""
    files = sorted({path for pattern in CHECKS[kind] for path in root.glob(pattern)})
    return _of_files(root, files).hexdigest()


def _of_files(root: Path, files: Iterable[Path]) -> "hashlib._Hash":
    digest = hashlib.sha256()
    for path in files:
        name, content = path.relative_to(root).as_posix(), path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest

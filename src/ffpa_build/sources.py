"""Hash of everything that decides what the kernels compute and how fast."""

import hashlib
from pathlib import Path

from .flags import NVCC_FLAGS

SUFFIXES = {".h", ".cuh", ".cu", ".cpp", ".toml"}


def source_files(root: Path) -> list[Path]:
    """The files under csrc/ that count, sorted by their path."""
    return sorted(path for path in (root / "csrc").rglob("*") if path.suffix in SUFFIXES)


def source_hash(root: Path) -> str:
    """SHA-256 (hex) over the paths and contents of csrc/ and the nvcc flags of the tree `root`.

    Architectures, compiler version and paths do not count: they are recorded beside the hash.
    """
    digest = hashlib.sha256()
    for path in source_files(root):
        name, content = path.relative_to(root).as_posix(), path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    digest.update("\0".join(NVCC_FLAGS).encode())
    return digest.hexdigest()

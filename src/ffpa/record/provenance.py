"""Which code ran: git state and the hash of the kernel sources."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from pathlib import Path
from typing import NamedTuple

from ffpa_build import manifest
from ffpa_build.sources import kernel_hashes, source_hash

from .store import REPOSITORY


class GitState(NamedTuple):
    """Commit and local changes; all None with a reason when git cannot tell."""

    commit: str | None
    dirty: bool | None
    diff_hash: str | None
    reason: str | None


def git_state(root: Path = REPOSITORY) -> GitState:
    """The state of the work tree. Recorded results do not count as a change of the code."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    try:
        commit = git("rev-parse", "HEAD").strip()
        code = (".", ":(exclude)experiments/results")
        changes = git("status", "--porcelain", "--", *code) + git("diff", "HEAD", "--", *code)
    except FileNotFoundError:
        return GitState(None, None, None, "git is not installed")
    except subprocess.CalledProcessError:
        return GitState(None, None, None, "not a git work tree with a commit")
    digest = hashlib.sha256(changes.encode()).hexdigest() if changes else None
    return GitState(commit, bool(changes), digest, None)


def tree_source_hash(root: Path = REPOSITORY) -> str:
    """Hash of the kernel sources as they lie in the work tree."""
    return source_hash(root)


@functools.cache
def tree_kernel_hashes(root: Path = REPOSITORY) -> dict[str, str]:
    """By kernel, the hash of what it alone is compiled from in the work tree; {} without one."""
    if not (root / "csrc" / "kernels.toml").exists():
        return {}
    return kernel_hashes(root, manifest.load(root))

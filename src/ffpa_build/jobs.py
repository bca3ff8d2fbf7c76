"""How many compilers may run at once."""

import os
from collections.abc import Mapping
from pathlib import Path

from .errors import BuildError

GIB = 1024**3
JOB_BYTES = GIB  # bindings.cpp takes 0.5 GiB and the largest kernel less; twice that to be safe


def job_count(environ: Mapping[str, str] = os.environ) -> int:
    """MAX_JOBS if set, else as many as the cores and the memory of machine and container allow."""
    if limit := environ.get("MAX_JOBS"):
        if not limit.isdigit() or int(limit) < 1:
            raise BuildError(f"MAX_JOBS={limit!r} is not a positive whole number: try MAX_JOBS=1")
        return int(limit)
    return max(1, min(len(os.sched_getaffinity(0)), available_memory() // JOB_BYTES))


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that this process may still take: what is free, or the cgroup's limit if lower."""
    fields = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    return min([available, *_cgroup_limits(proc, cgroup)])


def _cgroup_limits(proc: Path, cgroup: Path) -> list[int]:
    """Limits of this process's cgroup and those above it, of version 2 and 1."""
    limits = []
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            root, file = cgroup, "memory.max"
        elif controllers == "memory":
            root, file = cgroup / "memory", "memory.limit_in_bytes"
        else:
            continue
        # Inside a container the name may be the host's, and then only the root exists.
        folder = root / name.strip("/")
        for level in [folder, *folder.parents]:
            if level.is_relative_to(root) and (level / file).exists():
                text = (level / file).read_text().strip()
                limits += [int(text)] if text.isdigit() else []
    return limits

"""What a result depends on besides the code: environment.json, keyed by hash.

    {"<env_hash>": {"gpu": .., "software": .., "missing": .., "builds": {"<source_hash>": ..},
                    "runs": {"<run_id>": ..}}}

The hash covers the machine and its software. Builds and runs lie beside them, outside the hash:
two launches on one machine belong to one environment. A fact that cannot be had is null, and
`missing` says why. No host name, user or path is ever stored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

ENVIRONMENT_FILE = "environment.json"


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpu(_Facts):
    """The device, as NVML and torch describe it."""

    name: str
    uuid_suffix: str | None = None  # the last 4 characters: tells two cards of a kind apart
    sm_count: int | None = None
    capability: str | None = None
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    smem_per_block_bytes: int | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    pcie: str | None = None
    sm_clock_max_mhz: int | None = None
    mem_clock_max_mhz: int | None = None
    power_limit_w: float | None = None


class Software(_Facts):
    """Everything between the code and the device."""

    driver: str | None = None
    cuda_driver: str | None = None
    cuda_runtime: str | None = None
    cudnn: str | None = None
    torch: str
    torch_git: str | None = None
    triton: str | None = None
    python: str
    packages: dict[str, str] = Field(default_factory=dict)
    os: str
    libc: str
    cpu: str | None = None
    arch: str
    container: str | None = None
    lock_hash: str | None = None


class Build(_Facts):
    """How the extension was compiled (build_info of the extension)."""

    archs: list[str]
    flags: list[str]
    nvcc: str
    host_compiler: str
    extension_hash: str | None = None
    kernels: dict[str, Any]  # kernel name: {architecture: {registers, spill_bytes, ...}}
    sources: dict[str, str] = Field(default_factory=dict)  # kernel name: hash of its own sources


class Run(_Facts):
    """One launch of an experiment."""

    started: str  # UTC, to the second
    version: str
    git_commit: str | None = None
    git_dirty: bool | None = None
    diff_hash: str | None = None
    command: str
    config: dict[str, Any]  # the resolved settings that the points of a sweep share
    other_gpu_processes: int | None = None
    missing: dict[str, str] = Field(default_factory=dict)


class Environment(_Facts):
    """One entry of environment.json."""

    gpu: Gpu | None
    software: Software
    missing: dict[str, str] = Field(default_factory=dict)  # dotted field: why it is null
    builds: dict[str, Build] = Field(default_factory=dict)
    runs: dict[str, Run] = Field(default_factory=dict)

    @property
    def env_hash(self) -> str:
        """SHA-256 over the machine and its software."""
        facts = self.model_dump(mode="json", include={"gpu", "software"})
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def load_environments(folder: Path) -> dict[str, Environment]:
    """The environments of a results folder by hash; empty when nothing was recorded."""
    path = folder / ENVIRONMENT_FILE
    if not path.exists():
        return {}
    entries = json.loads(path.read_text())
    return {key: Environment.model_validate(entry) for key, entry in entries.items()}


def kernel_hash(
    environments: Mapping[str, Environment], kernel: str | None, env_hash: str, source_hash: str
) -> str | None:
    """The hash of what a kernel alone was compiled from, in a build that was recorded."""
    environment = environments.get(env_hash)
    build = environment.builds.get(source_hash) if environment else None
    return build.sources.get(kernel or "") if build else None


def unchanged(
    environments: Mapping[str, Environment],
    now: Mapping[str, str],
    kernel: str | None,
    env_hash: str,
    source_hash: str,
) -> bool:
    """Whether a kernel's hash `now` is known, and the one that it was recorded with."""
    recorded = kernel_hash(environments, kernel, env_hash, source_hash)
    return recorded is not None and recorded == now.get(kernel or "")


def remember(folder: Path, environment: Environment) -> str:
    """Merge an environment with its builds and runs into environment.json; returns its hash.

    The file is replaced whole, so that a reader or an interrupt never meets half of it.
    """
    key = environment.env_hash
    known = load_environments(folder)
    if (before := known.get(key)) is not None:
        environment = environment.model_copy(
            update={
                "builds": {**before.builds, **environment.builds},
                "runs": {**before.runs, **environment.runs},
            }
        )
    known[key] = environment
    entries = {name: entry.model_dump(mode="json") for name, entry in known.items()}
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{ENVIRONMENT_FILE}.{os.getpid()}"
    draft.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")
    draft.replace(folder / ENVIRONMENT_FILE)
    return key

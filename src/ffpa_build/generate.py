"""The C++ that is written under build/: one file per unit of kernels, and the registry of all."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .manifest import Instance

Selection = Sequence[tuple[Instance, tuple[str, ...]]]  # instances with the architectures to build


@dataclass(frozen=True)
class Unit:
    """Kernels of one header that are compiled in one file."""

    stem: str
    archs: tuple[str, ...]
    instances: list[Instance]

    @property
    def source(self) -> str:
        """The .cu file that instantiates the kernel template, once for each configuration."""
        functions = "\n".join(map(_function, self.instances))
        return f"""\
#include "{self.instances[0].header}"

#include "launch.cuh"

namespace ffpa {{
{functions}
}}  // namespace ffpa
"""


def units(selection: Selection) -> list[Unit]:
    """The files to compile, in the order of their first kernels."""
    found: dict[tuple[str, tuple[str, ...]], Unit] = {}
    for instance, archs in selection:
        unit = found.setdefault((instance.unit, archs), Unit(instance.unit, archs, []))
        unit.instances.append(instance)
    return list(found.values())


def _function(instance: Instance) -> str:
    fields = ", ".join(f".{name} = {value}" for name, value in instance.fields)
    return f"""\
KernelInfo {instance.symbol}() {{
  return kernel_info<{instance.template}<{instance.template}Config{{{fields}}}>>("{instance.id}");
}}"""


def registry_source(selection: Selection) -> str:
    """The .cpp file with the list of all instances in this build, in the order of kernels.toml."""
    declarations = "\n".join(f"KernelInfo {instance.symbol}();" for instance, _ in selection)
    entries = "\n".join(_entry(instance, archs) for instance, archs in selection)
    return f"""\
#include "registry.h"

namespace ffpa {{
{declarations}

const std::vector<Instance>& all_instances() {{
  static const std::vector<Instance> instances = {{
{entries}
  }};
  return instances;
}}
}}  // namespace ffpa
"""


def _entry(instance: Instance, archs: tuple[str, ...]) -> str:
    quoted = ", ".join(_literal(arch) for arch in archs)
    return (
        f"      {{.name = {_literal(instance.name)}, .variant = {_literal(instance.variant)},"
        f" .fallback = {str(instance.fallback).lower()},"
        f" .narrow = {str(instance.narrow).lower()},"
        f" .masks = {str(instance.masks).lower()},"
        f" .splits = {str(instance.splits).lower()},"
        f" .max_seqlen_k = {instance.max_seqlen_k}, .archs = {{{quoted}}},"
        f" .lesson = {_literal(instance.lesson)}, .reason = {_literal(instance.reason)},"
        f" .kernel = {instance.symbol}()}},"
    )


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # its escapes are C++'s


def write_if_changed(path: Path, text: str) -> None:
    """Write a file, but keep its time when the content is the same: ninja rebuilds by time."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)

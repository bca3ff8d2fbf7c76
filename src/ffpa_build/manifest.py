"""csrc/kernels.toml, the one list of compiled kernels: read, checked and multiplied out."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from .errors import BuildError

DTYPES = ("fp16", "bf16")
ACCS = ("f16", "f32", "qk32_pv16", "qk16_pv32", "f16f32")

# Keys of a kernel, and the keys of a config that are no fields of its C++ struct.
KERNEL_KEYS = {"id", "header", "archs", "lesson", "sass", "config"}
OPTIONAL_KERNEL_KEYS = {"test_archs"}
CONFIG_NOTES = {"variant", "fallback", "narrow", "masks", "splits", "max_seqlen_k", "reason"}
LISTS = ("headdim", "dtype", "acc")


@dataclass(frozen=True)
class Instance:
    """One kernel that gets compiled."""

    id: str
    header: str
    archs: tuple[str, ...]
    test_archs: tuple[str, ...]  # that can run it, where other kernels are chosen
    lesson: str
    sass: tuple[str, ...]  # instructions that its machine code must hold
    headdim: int
    dtype: str
    acc: str
    variant: str
    fallback: bool
    narrow: bool
    masks: bool  # takes an attn_mask
    splits: bool  # stands in for variant "" where keys split over CTAs keep more of them busy
    max_seqlen_k: int  # 0: any
    reason: str
    fields: tuple[tuple[str, str], ...]  # C++ struct fields and values, in the struct's order

    @property
    def name(self) -> str:
        """As in "split_d-sm80/d512/fp16/f32" or "…/stages1"."""
        parts = [self.id, f"d{self.headdim}", self.dtype, self.acc, self.variant]
        return "/".join(part for part in parts if part)

    @property
    def symbol(self) -> str:
        """The name as a C++ identifier and file stem."""
        return re.sub(r"\W", "_", self.name.replace("/", "__"))

    @property
    def unit(self) -> str:
        """Stem of the file that it is compiled in.

        Kernels that differ only in their types share one, since two thirds of nvcc's time for a
        kernel go to headers. In company ptxas gives the same code to mma.sync kernels, but other
        registers to wgmma kernels: each of those stays alone, so that a part of the kernels is
        built just as all are.
        """
        if "HGMMA" in self.sass:
            return self.symbol
        return self.symbol.replace(f"__{self.dtype}__{self.acc}", "")

    @property
    def template(self) -> str:
        """The C++ template of its header: split_d_sm80.cuh has SplitDSm80."""
        return "".join(word[:1].upper() + word[1:] for word in Path(self.header).stem.split("_"))


def load(root: Path) -> list[Instance]:
    """All instances of the tree `root`, in file order; BuildError names the entry at fault."""
    path = root / "csrc/kernels.toml"
    try:
        document = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise BuildError(f"kernels.toml is not valid TOML: {error}") from None
    instances: dict[str, Instance] = {}
    for kernel in document.get("kernel", []):
        for instance in _kernel(root, kernel):
            if instance.name in instances:
                raise BuildError(
                    f"kernels.toml lists {instance.name} twice: give one a variant, or drop it"
                )
            instances[instance.name] = instance
    return list(instances.values())


def select(
    instances: Iterable[Instance],
    archs: tuple[str, ...],
    patterns: tuple[str, ...] = (),
    for_tests: bool = False,
) -> list[tuple[Instance, tuple[str, ...]]]:
    """Instances to compile, each with those of its architectures that are in `archs`.

    `patterns` are ids, names or shell patterns of names. An empty tuple selects all. With
    `for_tests` architectures count for which a kernel is compiled only to be tested there.
    BuildError when one of `archs` or `patterns` selects nothing.
    """
    instances = list(instances)
    if for_tests:
        instances = [replace(one, archs=one.archs + one.test_archs) for one in instances]
    written_for = sorted({arch for instance in instances for arch in instance.archs})
    archs = archs or tuple(written_for)
    for arch in archs:
        if arch not in written_for:
            raise BuildError(
                f"FFPA_CUDA_ARCHS has {arch}, for which no kernel is written: "
                f"choose of {', '.join(written_for)}"
            )
    for pattern in patterns:
        if not any(_matches(instance, pattern) for instance in instances):
            ids = dict.fromkeys(instance.id for instance in instances)
            raise BuildError(
                f"FFPA_KERNELS={pattern!r} matches no kernel: ids are {', '.join(ids)}"
            )
    chosen = [
        (instance, tuple(arch for arch in archs if arch in instance.archs))
        for instance in instances
        if not patterns or any(_matches(instance, pattern) for pattern in patterns)
    ]
    return [(instance, kept) for instance, kept in chosen if kept]


def _matches(instance: Instance, pattern: str) -> bool:
    return instance.id == pattern or fnmatchcase(instance.name, pattern)


def _kernel(root: Path, kernel: dict[str, Any]) -> Iterator[Instance]:
    where = f"kernels.toml, kernel {kernel.get('id', '(no id)')}"
    allowed = KERNEL_KEYS | OPTIONAL_KERNEL_KEYS
    _require_keys(where, kernel, required=KERNEL_KEYS, allowed=allowed)
    code = "".join(with_includes(where, root / "csrc", kernel["header"], set()))
    for index, config in enumerate(kernel["config"], start=1):
        yield from _config(f"{where}, config {index}", kernel, config, code)


def with_includes(where: str, folder: Path, name: str, seen: set[str]) -> Iterator[str]:
    """The text of a header of ours and of those that it includes, each once."""
    if name in seen:
        return
    seen.add(name)
    path = folder / name
    if not path.exists():
        raise BuildError(f"{where}: {folder.name}/{name} does not exist")
    text = path.read_text()
    yield text
    for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        yield from with_includes(where, folder, included, seen)


def _config(
    where: str, kernel: dict[str, Any], config: dict[str, Any], code: str
) -> Iterator[Instance]:
    lists = [value if isinstance(value := config.get(key), list) else [value] for key in LISTS]
    for headdim, dtype, acc in product(*lists):
        point = config | {"headdim": headdim, "dtype": dtype, "acc": acc}
        instance = Instance(
            id=kernel["id"],
            header=kernel["header"],
            archs=tuple(kernel["archs"]),
            test_archs=tuple(kernel.get("test_archs", ())),
            lesson=kernel["lesson"],
            sass=tuple(kernel["sass"]),
            headdim=headdim,
            dtype=dtype,
            acc=acc,
            variant=config.get("variant", ""),
            fallback=config.get("fallback", False),
            narrow=config.get("narrow", False),
            masks=config.get("masks", False),
            splits=config.get("splits", False),
            max_seqlen_k=config.get("max_seqlen_k", 0),
            reason=config.get("reason", ""),
            fields=(),
        )
        _require_meaning(where, instance)
        struct = f"{instance.template}Config"
        fields = _fields(where, point, struct_fields(code, struct))
        yield replace(instance, fields=tuple(fields))


def _require_meaning(where: str, instance: Instance) -> None:
    if instance.dtype not in DTYPES:
        raise BuildError(f"{where}: dtype {instance.dtype!r} is none of {', '.join(DTYPES)}")
    if instance.acc not in ACCS:
        raise BuildError(f"{where}: acc {instance.acc!r} is none of {', '.join(ACCS)}")
    if instance.dtype == "bf16" and instance.acc != "f32":
        raise BuildError(f"{where}: bf16 has no F16 accumulator, so acc must be f32 there")
    if not isinstance(instance.headdim, int) or instance.headdim <= 0 or instance.headdim % 8:
        raise BuildError(f"{where}: headdim {instance.headdim!r} is not a positive multiple of 8")


@dataclass(frozen=True)
class Field:
    """A field of a C++ config struct."""

    type: str
    has_default: bool


def struct_fields(code: str, struct: str) -> dict[str, Field]:
    """Fields of `struct Name { int a, b; bool c = true; };` in C++ code.

    Kernels may share a struct: `using Name = Other;` gives the fields of Other.
    """
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", code, flags=re.DOTALL)
    if alias := re.search(rf"\busing\s+{struct}\s*=\s*(\w+)\s*;", code):
        struct = alias[1]
    body = re.search(rf"\bstruct\s+{struct}\s*\{{(.*?)\}};", code, re.DOTALL)
    if not body:
        raise BuildError(
            f"struct {struct} is neither in the kernel's header nor in what it includes"
        )
    fields = {}
    for declaration in body[1].split(";"):
        parts = re.fullmatch(r"\s*(\w+)\s+([^()]+)", declaration)
        if parts and parts[1] != "using":
            for declarator in parts[2].split(","):
                name, equals, _ = declarator.partition("=")
                fields[name.strip()] = Field(parts[1], bool(equals))
    return fields


def _fields(
    where: str, point: dict[str, Any], known: dict[str, Field]
) -> Iterator[tuple[str, str]]:
    required = {name for name, field in known.items() if not field.has_default}
    _require_keys(where, point, required=required, allowed=known.keys() | CONFIG_NOTES)
    for name, field in known.items():
        if name in point:
            yield name, _cpp_value(f"{where}: {name}", field.type, point[name])


def _cpp_value(where: str, type_: str, value: object) -> str:
    if type_ == "bool":
        if isinstance(value, bool):
            return str(value).lower()
        raise BuildError(f"{where} = {value!r} should be true or false")
    if type_ in ("int", "int32_t", "int64_t"):
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise BuildError(f"{where} = {value!r} should be a whole number")
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z]\w*", value):
        return f"{type_}::{value}"
    raise BuildError(f"{where} = {value!r} should be a name in {type_}")


def _require_keys(
    where: str, table: dict[str, Any], required: Iterable[str], allowed: Iterable[str]
) -> None:
    if unknown := sorted(table.keys() - set(allowed)):
        raise BuildError(
            f"{where}: unknown key {unknown[0]}; known are {', '.join(sorted(allowed))}"
        )
    if missing := sorted(set(required) - table.keys()):
        raise BuildError(f"{where}: the key {missing[0]} is missing")

"""What ptxas said of each kernel: registers, spills, shared memory, warnings."""

import re
from typing import TypedDict

from .manifest import ACCS, DTYPES

# The first fields of a kernel's configuration in its mangled name.
TYPES = re.compile(r"ConfigELNS_5DTypeE(\d)ELNS_3AccE(\d)E")
ENTRY = re.compile(r"Compiling entry function '(?P<entry>\w+)' for 'sm_(?P<arch>\w+)'")
STACK = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
USED = re.compile(r"Used (?P<registers>\d+) registers")
STATIC_SMEM = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
# wgmma serialisation and its like come as "info" with a code.
WARNING = re.compile(r"^ptxas (?:warning\s*:|info\s*:(?= \(C\d+\)))\s*(?P<text>.*)")


class Resources(TypedDict):
    """One kernel on one architecture, as compiled.

    `registers` is per thread; a kernel that moves registers between warps by setmaxnreg shows the
    count it is launched with.
    """

    entry: str  # mangled name
    registers: int
    spill_bytes: int  # stores and loads together
    stack_bytes: int
    static_smem_bytes: int


def about(log: str, dtype: str, acc: str) -> str:
    """The lines about the kernel of these types, in the log of a file that has several."""
    wanted = str(DTYPES.index(dtype)), str(ACCS.index(acc))
    kept, in_wanted = [], True
    for line in log.splitlines(keepends=True):
        types = TYPES.search(line)
        is_wanted = types.groups() == wanted if types else in_wanted
        if ENTRY.search(line):
            in_wanted = is_wanted
        if is_wanted:
            kept.append(line)
    return "".join(kept)


def parse(log: str) -> dict[str, Resources]:
    """Per architecture, the entry function in a ptxas log; of several, the one that uses most."""
    entries: list[tuple[str, Resources]] = []
    for line in log.splitlines():
        if match := ENTRY.search(line):
            entries.append((match["arch"], _empty(match["entry"])))
        elif entries:
            _add(entries[-1][1], line)
    worst: dict[str, Resources] = {}
    for arch, found in entries:
        if arch not in worst or _weight(found) > _weight(worst[arch]):
            worst[arch] = found
    return worst


def warnings(log: str) -> list[str]:
    """The texts of ptxas's warnings, each once, with "the kernel" for the mangled names."""
    found = (match["text"] for line in log.splitlines() if (match := WARNING.match(line)))
    return list(dict.fromkeys(re.sub(r"'?\b_Z\w+'?", "the kernel", text) for text in found))


def _empty(entry: str) -> Resources:
    return Resources(entry=entry, registers=0, spill_bytes=0, stack_bytes=0, static_smem_bytes=0)


def _add(resources: Resources, line: str) -> None:
    if match := STACK.search(line):
        resources["stack_bytes"] = int(match["stack"])
        resources["spill_bytes"] = int(match["stores"]) + int(match["loads"])
    if match := USED.search(line):
        resources["registers"] = int(match["registers"])
    if match := STATIC_SMEM.search(line):
        resources["static_smem_bytes"] = int(match[1])


def _weight(resources: Resources) -> tuple[int, int]:
    return resources["spill_bytes"], resources["registers"]

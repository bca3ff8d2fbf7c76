"""Writes build_info.cpp: `python -m ffpa_build.build_info FACTS.json OUTPUT.cpp`.

FACTS.json is what was known before compiling, with the ptxas log of each kernel under "logs"; what
the logs say of it is put in their place.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import resources
from .errors import BuildError

# Opens the JSON text in the extension, so that it can be read from a file of any architecture.
MARKER = '{"format": "ffpa-build-info-1", '


def source(facts: dict[str, Any]) -> str:
    """The C++ source that holds the build info as one JSON string."""
    logs = {name: _log(name, Path(path)) for name, path in facts["logs"].items()}
    info = {key: value for key, value in facts.items() if key != "logs"} | {
        "kernels": {name: resources.parse(log) for name, log in logs.items()},
        "warnings": {
            name: texts for name, log in logs.items() if (texts := resources.warnings(log))
        },
    }
    text = MARKER + json.dumps(info, sort_keys=True).removeprefix("{")
    # String literals may be joined but not be of any length: 16 KiB is below every limit.
    pieces = [text[start : start + 16000] for start in range(0, len(text), 16000)]
    literals = "\n".join(f'    R"info({piece})info"' for piece in pieces)
    return (
        '#include "registry.h"\n\n'
        f"namespace ffpa {{\nconst char* build_info_json() {{\n  return\n{literals};\n}}\n"
        "}  // namespace ffpa\n"
    )


def counted(kernels: int, patterns: Sequence[str], debug_barriers: bool = False) -> str:
    """As in "280 kernels", or "2 kernels, a part: FFPA_KERNELS=naive, for debugging: …"."""
    part = f", a part: FFPA_KERNELS={';'.join(patterns)}" if patterns else ""
    debug = ", for debugging: FFPA_DEBUG_BARRIERS=1" if debug_barriers else ""
    return f"{kernels} kernels{part}{debug}"


def is_debug(info: dict[str, Any]) -> bool:
    """Whether it was built with FFPA_DEBUG_BARRIERS, which older builds do not know."""
    return bool(info.get("debug_barriers"))


def described(info: dict[str, Any]) -> str:
    """The same of a finished build."""
    return counted(len(info["kernels"]), info["kernel_filter"], is_debug(info))


def _log(name: str, path: Path) -> str:
    """What ptxas said of the kernel `name`; BuildError where it said nothing."""
    _, _, dtype, acc, *_ = name.split("/")
    log = resources.about(path.read_text(), dtype, acc)
    if not resources.parse(log):
        raise BuildError(f"{path} has no word of ptxas on {name}: remove its folder, build again")
    return log


def read(extension: Path) -> dict[str, Any]:
    """The build info in a compiled extension, without loading it; ValueError if it has none."""
    content = extension.read_bytes()
    start = content.find(MARKER.encode())
    if start < 0:
        raise ValueError(f"{extension} holds no build info: it is no FFPA extension")
    info: dict[str, Any] = json.loads(content[start : content.index(b"\0", start)])
    return info


if __name__ == "__main__":
    try:
        text = source(json.loads(Path(sys.argv[1]).read_text()))
    except BuildError as error:
        sys.exit(f"error: {error}")
    Path(sys.argv[2]).write_text(text)

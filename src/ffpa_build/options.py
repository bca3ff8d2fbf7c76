"""Build options: environment variables, all named FFPA_*, so that a misspelt one can be caught."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from .errors import BuildError

KNOWN = {
    "FFPA_CUDA_ARCHS": "architectures, as in 80;90a; unset: all that kernels are written for",
    "FFPA_KERNELS": "for development: compile only these, as in naive;split_d-sm80/d512/*",
    "FFPA_TEST_ARCHS": "1: also what is written for small shared memory, for tests on an H100",
    "FFPA_DEBUG_BARRIERS": "1: a wait on a barrier ends after a second and says who waits; slow",
    "FFPA_HOST_CXX": "C++ compiler; one for another machine makes a cross build",
    "FFPA_CUDA_LIB": "folder of libcudart_static.a, needed for a cross build",
    "FFPA_PYTHON_INCLUDE": "folders (:) of Python.h and what it includes, needed for a cross build",
}

# For the runs, not the build: an image sets them.
RUN_TIME = {"FFPA_IMAGE", "FFPA_OUTPUTS", "FFPA_RESULTS", "FFPA_SITE"}


@dataclass(frozen=True)
class Options:
    """What was asked for; None and () stand for unset, which an empty value is too."""

    archs: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    test_archs: bool = False
    debug_barriers: bool = False
    host_cxx: str | None = None
    cuda_lib: str | None = None
    python_include: str | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Options":
        """Options in `environ`; BuildError for an unknown FFPA_* name or a malformed value."""
        given = {name: value for name, value in environ.items() if name.startswith("FFPA_")}
        for name in given:
            _require_known(name)
        return cls(
            archs=parse_archs(given.get("FFPA_CUDA_ARCHS", "")),
            kernels=_split(given.get("FFPA_KERNELS", "")),
            test_archs=_switch("FFPA_TEST_ARCHS", given),
            debug_barriers=_switch("FFPA_DEBUG_BARRIERS", given),
            host_cxx=given.get("FFPA_HOST_CXX") or None,
            cuda_lib=given.get("FFPA_CUDA_LIB") or None,
            python_include=given.get("FFPA_PYTHON_INCLUDE") or None,
        )


def parse_archs(text: str) -> tuple[str, ...]:
    """("80", "90a") of "80;90a", "80,90a" or "8.0 9.0a", in order and without repeats."""
    archs = tuple(dict.fromkeys(part.replace(".", "") for part in _split(text)))
    for arch in archs:
        if not re.fullmatch(r"\d{2,3}[af]?", arch):
            raise BuildError(
                f"FFPA_CUDA_ARCHS={text!r} has {arch!r}, which is no compute capability: "
                "write them like 80;90;90a"
            )
    return archs


def _switch(name: str, given: Mapping[str, str]) -> bool:
    value = given.get(name, "")
    if value not in ("", "0", "1"):
        raise BuildError(f"{name}={value!r} is neither 1 nor 0: set it to 1, or unset it")
    return value == "1"


def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[;,\s]+", text) if part)


def _require_known(name: str) -> None:
    if name in KNOWN or name in RUN_TIME:
        return
    close = get_close_matches(name, KNOWN, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise BuildError(f"unknown build option {name}{hint}: known are {', '.join(KNOWN)}")

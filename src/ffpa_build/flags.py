"""Compiler flags that shape the code. They count towards the source hash, so no paths here.

No -lineinfo: it makes the kernels 3.5 times as large.
"""

NVCC_FLAGS = (
    "-O3",
    "-std=c++20",
    "--expt-relaxed-constexpr",
    "-Xptxas=-v,--warn-on-spills",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall",
)

# Added for a build that looks for a hang: prim/mbarrier.cuh says what it does.
DEBUG_BARRIERS = "-DFFPA_DEBUG_BARRIERS"

CXX_FLAGS = ("-O2", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


def nvcc_flags(debug_barriers: bool = False) -> tuple[str, ...]:
    """NVCC_FLAGS, and what a debug build adds."""
    return (*NVCC_FLAGS, DEBUG_BARRIERS) if debug_barriers else NVCC_FLAGS


def gencode(archs: tuple[str, ...]) -> list[str]:
    """nvcc flags for machine code of these architectures ("80", "90a"), without PTX."""
    return [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]

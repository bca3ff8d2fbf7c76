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

CXX_FLAGS = ("-O2", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


def gencode(archs: tuple[str, ...]) -> list[str]:
    """nvcc flags for machine code of these architectures ("80", "90a"), without PTX."""
    return [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]

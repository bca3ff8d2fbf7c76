"""Compiles kernels by NVRTC 12.9, the newest CUDA 12 front end that is published as a wheel.

    python docker/nvrtc.py [PATTERN…]     # as FFPA_KERNELS; default: DEFAULT below

Needs nvidia-cuda-nvrtc-cu12, -runtime-cu12 and -cccl-cu12, and ffpa_build. NVRTC compiles device
code only, so what kernels include for the host is replaced by stand-ins that keep the device code
referenced. Prints registers and spills of each kernel; exits with 1 when one does not compile.
"""

import ctypes
import sys
from pathlib import Path

from ffpa_build import generate, manifest, resources

ROOT = Path(__file__).resolve().parents[1]

# What g++ and the cicc behind nvcc have built in.
BUILTINS = """
#include <cuda/std/limits>
#include <cuda/std/type_traits>
#define __is_same(...) cuda::std::is_same_v<__VA_ARGS__>
#define __builtin_huge_valf() cuda::std::numeric_limits<float>::infinity()
"""
STD = "#pragma once\n#include <cuda/std/{0}>\nnamespace std {{ using namespace cuda::std; }}\n"
HEADERS = {
    "algorithm": "".join(STD.format(f"__algorithm/{name}.h") for name in ("clamp", "max", "min")),
    "cmath": STD.format("cmath") + "namespace std { float ldexp(float, int); }\n",
    "cstdint": STD.format("cstdint"),
    "type_traits": STD.format("type_traits"),
    "cuda.h": "#pragma once\nstruct alignas(64) CUtensorMap { char opaque[128]; };\n",
    "registry.h": "#pragma once\n",
    "launch.cuh": """
#pragma once
#include "config.cuh"
#include "params.h"
namespace ffpa {
using KernelInfo = cudaError_t;
template <class Kernel>
KernelInfo kernel_info(const char*) { return Kernel::launch({}, nullptr); }
template <class... Params, class... Rest>
cudaError_t launch_kernel(void (*kernel)(Params...), Rest&&...) {
  return kernel ? cudaSuccess : cudaErrorUnknown;
}
}
""",
    "prim/device.h": """
#pragma once
namespace ffpa {
cudaError_t num_multiprocessors(int& count);
template <class... Rest>
cudaError_t num_resident_clusters(Rest&&...) { return cudaSuccess; }
}
""",
    "prim/tensor_map.h": """
#pragma once
#include <cuda.h>
#include <cstdint>
#include "config.cuh"
#include "params.h"
namespace ffpa {
constexpr int kBoxColumns = 64;
struct TensorShape { int32_t batch, heads, rows, columns; };
struct PieceMap { CUtensorMap map; int boxes_per_load; };
const void* element_at(const void* data, int64_t);
template <class... Rest>
cudaError_t make_piece_map(Rest&&...) { return cudaSuccess; }
}
""",
}


# Each kernel at D=512, and the structure of split_d-sm90 that D=512 does not have.
DEFAULT = ("naive", "*/d512/*", "split_d-sm90/d1024/*")


class Nvrtc:
    """The library of the wheel."""

    def __init__(self) -> None:
        site = next(path for path in map(Path, sys.path) if (path / "nvidia/cuda_nvrtc").exists())
        self._library = ctypes.CDLL(str(site / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
        names = ("cuda_runtime", "cuda_cccl")
        self._includes = [f"-I{site / 'nvidia' / name / 'include'}" for name in names]

    @property
    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, source: str, arch: str) -> tuple[bool, str]:
        """Whether it compiles to machine code, and the log."""
        names, texts = _strings(HEADERS), _strings(HEADERS.values())
        program = ctypes.c_void_p()
        self._library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernel.cu", len(HEADERS), texts, names
        )
        flags = _strings(
            [
                f"--gpu-architecture=sm_{arch}", "-std=c++20", "-default-device",
                # A narrowing conversion tells of an overload that nobody meant: CUDA 13 chooses
                # others than 12 for values in braces.
                "--diag-error=2361", "--ptxas-options=-v", f"-I{ROOT / 'csrc'}", *self._includes,
            ]
        )  # fmt: skip
        status = self._library.nvrtcCompileProgram(program, len(flags), flags)
        size = ctypes.c_size_t()
        self._library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self._library.nvrtcGetProgramLog(program, log)
        self._library.nvrtcDestroyProgram(ctypes.byref(program))
        return status == 0, log.value.decode()


def _strings(texts):
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def main(patterns: list[str]) -> int:
    nvrtc = Nvrtc()
    instances = manifest.load(ROOT)
    chosen = manifest.select(instances, (), tuple(patterns or DEFAULT))
    failed = 0
    for instance, archs in chosen:
        for arch in archs:
            (unit,) = generate.units([(instance, archs)])
            compiled, log = nvrtc.compile(BUILTINS + unit.source, arch)
            found = resources.parse(log)
            if compiled and arch in found:
                use = found[arch]
                text = f"{use['registers']} registers, {use['spill_bytes']} bytes spilled"
            else:
                failed += 1
                text = f"failed:\n{log}"
            print(f"NVRTC {nvrtc.version}: {instance.name} for sm_{arch}: {text}", flush=True)
    print(f"{len(chosen)} kernels, {failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

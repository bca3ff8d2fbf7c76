#!/usr/bin/env bash
# Compiles the extension for ARM64 on another machine, checks its machine code and imports it under
# qemu. Takes minutes where the whole image under qemu takes an hour, and needs no root:
#   PYTHON=.nox/ffpa/bin/python docker/cross.sh
#
# PYTHON has the build requirements (`nox -s build` makes one). FFPA_KERNELS may name fewer kernels.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=docker/debian.sh
. docker/debian.sh
# shellcheck source=docker/engine.sh
. docker/engine.sh

RELEASE=bookworm PYTHON_VERSION=3.11
python=${PYTHON:-python3}
require_command aarch64-linux-gnu-g++ "apt-get install g++-aarch64-linux-gnu"
require_command qemu-aarch64-static "apt-get install qemu-user-static"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
unpack_debs "$RELEASE" arm64 "$root" libc6 libexpat1 libgcc-s1 "libpython$PYTHON_VERSION-dev" \
  "libpython$PYTHON_VERSION-minimal" "libpython$PYTHON_VERSION-stdlib" \
  "python$PYTHON_VERSION-minimal" zlib1g

# The static CUDA runtime for ARM64, of the release that nvcc here has.
runtime=$(PYTHONPATH=src "$python" - <<'PYTHON'
from ffpa_build.nvcc import WHEELS, find_nvcc

cuda_13 = find_nvcc().version.startswith("13.")
wheels = [*WHEELS, "nvidia-cuda-runtime-cu12==12.9.79"]
print([name for name in wheels if name.startswith("nvidia-cuda-runtime")][0 if cuda_13 else 1])
PYTHON
)
unpack_wheels aarch64 "$work/cuda" "$runtime"
library=$(find "$work/cuda" -name libcudart_static.a)

include=$root/usr/include
FFPA_HOST_CXX=aarch64-linux-gnu-g++ FFPA_CUDA_LIB=$(dirname "$library") \
  FFPA_PYTHON_INCLUDE=$include/python$PYTHON_VERSION:$include \
  "$python" setup.py --quiet build_ext --build-lib "$work/lib"
module=$(echo "$work"/lib/ffpa/_C.*.so)
PYTHONPATH=src "$python" -m ffpa_build.check "$module"

PYTHONHOME=$root/usr qemu-aarch64-static -L "$root" "$root/usr/bin/python$PYTHON_VERSION" - \
  "$module" <<'PYTHON'
import importlib.util
import platform
import sys

spec = importlib.util.spec_from_file_location("_C", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
archs = " ".join(module.build_info()["archs"])
print(f"ffpa: {len(module.kernels())} kernels, architectures {archs}, on {platform.machine()}")
PYTHON

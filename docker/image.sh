#!/usr/bin/env bash
# Builds the image for one architecture and tests it, with Docker or else buildah:
#   docker/image.sh [--platform linux/amd64|linux/arm64] [--standin] [--no-tests]
#
# --standin bases it on what docker/standin.sh makes instead of the public CUDA image. BASE_IMAGE,
# COMPILER_IMAGE, FFPA_KERNELS, PYTORCH_INDEX and TORCH_CUDA of the environment override the
# Dockerfile's.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=docker/engine.sh
. docker/engine.sh

platform=$(native_platform)
standin=false tests=true
while [ $# -gt 0 ]; do
  case $1 in
  --platform)
    platform=${2:-}
    [ $# = 1 ] || shift
    ;;
  --standin) standin=true ;;
  --no-tests) tests=false ;;
  *)
    sed -n '2,3s/^# *//p' "$0" >&2
    exit 2
    ;;
  esac
  shift
done
case $platform in
linux/amd64) machine=x86_64 ;;
linux/arm64) machine=aarch64 ;;
*)
  echo "error: --platform ${platform:-(nothing)} is not one of linux/amd64, linux/arm64" >&2
  exit 2
  ;;
esac
arch=${platform#linux/}
require_runnable "$machine"
engine=$(choose_engine)

if "$standin"; then
  BASE_IMAGE=$(docker/standin.sh "$arch")
  COMPILER_IMAGE=$BASE_IMAGE
  if [ "$platform" != "$(native_platform)" ]; then
    COMPILER_IMAGE=$(docker/standin.sh "$(native_platform | cut -d / -f 2)")
  fi
  export BASE_IMAGE COMPILER_IMAGE
  if [ "$arch" = arm64 ]; then
    # Where public images are out of reach, so is PyTorch's index, and torch has no CUDA.
    : "${PYTORCH_INDEX=}" "${TORCH_CUDA=none}"
  fi
fi

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/ffpa/__init__.py)
revision=$(git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
arguments=("VERSION=$version" "REVISION=$revision")
for name in BASE_IMAGE COMPILER_IMAGE FFPA_KERNELS PYTORCH_INDEX TORCH_CUDA; do
  if [ -n "${!name+set}" ]; then
    arguments+=("$name=${!name}")
  fi
done
image=localhost/ffpa:$arch
SECONDS=0
"build_with_$engine" "$platform" "$image" docker/Dockerfile . "${arguments[@]}"
echo "ffpa: built $image with $engine in $SECONDS s"
"$tests" || exit 0

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
chmod 1777 "$results"
SECONDS=0
"run_with_$engine" "$image" "$platform" 12345:12345 "$results" docker/check.sh
echo "ffpa: $image passed its tests in $SECONDS s"

#!/bin/sh
# Installs what a stage of the Dockerfile needs:
#   install.sh system [amd64|arm64]   Python and a C++ compiler, one for that architecture too
#   install.sh tools                  what building and checking the extension takes
#   install.sh all                    after tools everything; on ARM64 then torch with CUDA from
#                                     $PYTORCH_INDEX
# Python packages come from the lock file of this machine, with hashes, into the Python in PATH.
set -eu
cd "$(dirname "$0")"
machine=$(uname -m)
lock=lock-$machine.txt
tools='ninja|nvidia-cuda-cuobjdump|nvidia-cuda-nvdisasm|pybind11|setuptools'

install() {
  python -m pip install --disable-pip-version-check --no-input --root-user-action=ignore "$@"
}

case ${1:-} in
system)
  cross=
  case ${2:-}-$machine in
  arm64-x86_64) cross=g++-aarch64-linux-gnu ;;
  amd64-aarch64) cross=g++-x86-64-linux-gnu ;;
  esac
  apt-get update
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    ca-certificates g++ python3 python3-dev python3-venv ${cross:+"$cross"}
  rm -rf /var/lib/apt/lists/*
  python3 -m venv /opt/venv
  ;;
tools)
  subset=$(mktemp)
  # An entry is its line name==version and those that follow while lines end in a backslash.
  sed -n -E "/^($tools)==/,/[^\\\\]\$/p" "$lock" >"$subset"
  install --no-deps --require-hashes -r "$subset"
  rm "$subset"
  ;;
all)
  # Without isolation, so that what comes as source is built by the locked setuptools.
  install --no-build-isolation --require-hashes -r "$lock"
  if [ "$machine" = aarch64 ] && [ -n "${PYTORCH_INDEX:-}" ]; then
    # cu128, the last part of the index, is what its wheels are called: 2.10.0+cu128.
    torch=$(sed -n -E 's/^(torch==[0-9.]+).*/\1/p' "$lock")
    install --index-url "$PYTORCH_INDEX" "$torch+${PYTORCH_INDEX##*/}"
  fi
  ;;
*)
  echo "usage: install.sh system|tools|all" >&2
  exit 2
  ;;
esac

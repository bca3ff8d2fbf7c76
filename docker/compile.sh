#!/bin/sh
# Compiles the extension into src/ffpa and checks it: `compile.sh amd64|arm64`, in the Dockerfile.
# For another architecture than this machine's, /target has its headers and static CUDA runtime.
set -eu
case $1 in
amd64) cpu=x86_64 ;;
arm64) cpu=aarch64 ;;
esac
if [ "$cpu" != "$(uname -m)" ]; then
  export FFPA_HOST_CXX="$cpu-linux-gnu-g++" FFPA_CUDA_LIB=/target
  include=$(echo /target/usr/include/python3.*)
  export FFPA_PYTHON_INCLUDE="$include:/target/usr/include"
fi
python setup.py --quiet build_ext --inplace
PYTHONPATH=src python -m ffpa_build.check --allow-spills src/ffpa/_C.*.so

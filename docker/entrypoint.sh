#!/bin/sh
# Says in one line which GPU the container has, and which kernels are in it if not all, then becomes
# the command.
set -eu
oldest_driver=525 # of CUDA 12.x

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) || gpu=
if [ -z "$gpu" ]; then
  line='no CUDA device visible: add --gpus all'
  case ${FFPA_IMAGE:-} in
  *', only kernels '*) line="$FFPA_IMAGE: $line" ;;
  esac
else
  first=$(printf '%s\n' "$gpu" | head -n 1)
  count=$(printf '%s\n' "$gpu" | wc -l)
  driver=${first##*, }
  line="${FFPA_IMAGE:-ffpa}: $count x ${first%, *}, driver $driver"
  if [ "${driver%%.*}" -lt "$oldest_driver" ]; then
    line="$line, too old for CUDA 12: install driver $oldest_driver or newer on the host"
  fi
fi
echo "$line" >&2
exec "$@"

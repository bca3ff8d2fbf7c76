# shellcheck shell=bash
# Sourced: what builds and runs images on this machine, Docker (BuildKit) or buildah.

# require_command NAME FIX
require_command() {
  if ! command -v "$1" >/dev/null; then
    echo "error: $1 is not installed here: $2" >&2
    exit 1
  fi
}

# require_root WHY
require_root() {
  if [ "$(id -u)" != 0 ]; then
    echo "error: this needs root $1: run it as root, or where there is a Docker daemon" >&2
    exit 1
  fi
}

# linux/amd64 or linux/arm64
native_platform() {
  uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/; s/^/linux\//'
}

# require_runnable MACHINE: programs for x86_64 or aarch64 run here, by qemu if need be.
require_runnable() {
  if [ "$1" = "$(uname -m)" ] || grep -qs enabled "/proc/sys/fs/binfmt_misc/qemu-$1"; then
    return
  fi
  echo "error: $1 programs do not run on this $(uname -m) machine: install qemu-user-static and" \
    "binfmt-support, and mount binfmt_misc on /proc/sys/fs/binfmt_misc" >&2
  exit 1
}

# "docker" where a daemon answers and can build, else "buildah".
choose_engine() {
  if docker info >/dev/null 2>&1 && docker buildx version >/dev/null 2>&1; then
    echo docker
  elif command -v buildah >/dev/null; then
    require_root "to run buildah with chroot isolation"
    echo buildah
  else
    echo "error: neither a Docker daemon with buildx nor buildah is here:" \
      "apt-get install buildah, or start Docker" >&2
    exit 1
  fi
}

# is_there_with_ENGINE IMAGE
is_there_with_docker() {
  docker image inspect "$1" >/dev/null 2>&1
}

is_there_with_buildah() {
  buildah inspect --type image "$1" >/dev/null 2>&1
}

# import_with_ENGINE ROOT.tar ARCHITECTURE NAME: a root file system becomes an image.
import_with_docker() {
  docker import --platform "linux/$2" "$1" "$3"
}

import_with_buildah() {
  local container
  container=$(buildah from --arch "$2" scratch)
  buildah add --quiet "$container" "$1" /
  buildah commit --quiet --rm "$container" "$3"
}

# build_with_ENGINE PLATFORM NAME FILE FOLDER [NAME=VALUE…]: the Dockerfile with these arguments.
build_with_docker() {
  local platform=$1 image=$2 file=$3 folder=$4
  shift 4
  docker buildx build --load --platform "$platform" --tag "$image" --file "$file" \
    --network host "${@/#/--build-arg=}" "$folder"
}

build_with_buildah() {
  local platform=$1 image=$2 file=$3 folder=$4
  shift 4
  # The format is Docker's because OCI's has no health check. BuildKit sets BUILDPLATFORM itself.
  buildah build --isolation chroot --format docker --layers --platform "$platform" \
    --build-arg "BUILDPLATFORM=$(native_platform)" --tag "$image" --file "$file" --network host "${@/#/--build-arg=}" "$folder"
}

# run_with_ENGINE IMAGE PLATFORM USER RESULTS COMMAND…: as strictly as the image has to bear it,
# with an unknown user, a read-only root, an empty /tmp, RESULTS at /results and no network.
run_with_docker() {
  local image=$1 platform=$2 user=$3 results=$4
  shift 4
  docker run --rm --platform "$platform" --user "$user" --read-only --tmpfs /tmp \
    --network none --volume "$results:/results" "$image" "$@"
}

# buildah has no read-only root, so this does by hand what a container runtime does.
run_with_buildah() {
  local image=$1 platform=$2 user=$3 results=$4 container root status=0
  shift 4
  container=$(buildah from --pull-never --platform "$platform" "$image")
  root=$(buildah mount "$container")
  local environment=() entrypoint=() workdir
  mapfile -t environment < <(buildah inspect \
    --format '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' "$container" | sed '/^$/d')
  mapfile -t entrypoint < <(buildah inspect \
    --format '{{range .OCIv1.Config.Entrypoint}}{{println .}}{{end}}' "$container" | sed '/^$/d')
  workdir=$(buildah inspect --format '{{.OCIv1.Config.WorkingDir}}' "$container")
  if [ $# = 0 ]; then
    mapfile -t arguments < <(buildah inspect \
      --format '{{range .OCIv1.Config.Cmd}}{{println .}}{{end}}' "$container" | sed '/^$/d')
    set -- "${arguments[@]}"
  fi
  # shellcheck disable=SC2016  # expanded inside the namespace
  unshare --mount --net --ipc --uts --pid --fork sh -c '
    set -e
    root=$1 user=$2 results=$3 workdir=$4
    shift 4
    mount --bind "$root" "$root"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=1777,nosuid,nodev,noexec tmpfs "$root/tmp"
    mount --bind "$results" "$root/results"
    mount -o remount,bind,ro "$root"
    exec chroot --userspec="$user" "$root" env --chdir="$workdir" --ignore-environment "$@"
  ' sh "$root" "$user" "$results" "$workdir" "${environment[@]}" "${entrypoint[@]}" "$@" ||
    status=$?
  buildah umount "$container" >/dev/null
  buildah rm "$container" >/dev/null
  return "$status"
}

#!/usr/bin/env bash
# Makes a base image where public ones cannot be had: `docker/standin.sh amd64|arm64`.
#
# It is Debian by debootstrap, with Debian's CUDA 12.4 compiler in /usr/local/cuda: enough for all
# that the Dockerfile does. Prints the image's name, for BASE_IMAGE; one that is there already is
# not made again. Needs root, debootstrap and Docker or buildah; for another architecture than this
# machine's also qemu in binfmt_misc.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=docker/debian.sh
. "$here/debian.sh"
# shellcheck source=docker/engine.sh
. "$here/engine.sh"

RELEASE=bookworm # its g++ 12 is one that nvcc 12.4 accepts
TOOLKIT_RELEASE=trixie

# Debian's toolkit package, with headers and the static runtime from NVIDIA's wheels: the packages
# that hold those in Debian pull in every CUDA library, 5 GB of them.
install_cuda() {
  local root=$1 arch=$2 machine=$3 cuda=$1/usr/local/cuda parts part toolkit
  parts=$(mktemp -d)
  unpack_debs "$TOOLKIT_RELEASE" "$arch" "$parts/deb" nvidia-cuda-toolkit
  unpack_wheels "$machine" "$parts/headers" nvidia-cuda-nvcc-cu12==12.4.131 \
    nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-cccl-cu12==12.9.27
  # The 12.4 wheel has no static library.
  unpack_wheels "$machine" "$parts/runtime" nvidia-cuda-runtime-cu12==12.9.79

  mkdir -p "$cuda"/{bin,include,lib64,nvvm/libdevice}
  for part in bin2c cudafe++ cuobjdump fatbinary nvdisasm nvlink ptxas; do
    cp "$parts/deb/usr/bin/$part" "$cuda/bin/"
  done
  toolkit=$parts/deb/usr/lib/nvidia-cuda-toolkit
  cp -r "$toolkit"/bin/{cicc,crt,nvcc} "$cuda/bin/"
  cp "$toolkit/libdevice/"*.bc "$cuda/nvvm/libdevice/"
  cp -r "$parts"/headers/nvidia/*/include/. "$cuda/include/"
  cp "$parts/runtime/nvidia/cuda_runtime/lib/libcudart_static.a" "$cuda/lib64/"
  cat >"$cuda/bin/nvcc.profile" <<'PROFILE'
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/bin:
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
PROFILE
  rm -r "$parts"
}

# A machine whose registry is signed by an authority of its own says so in PIP_CERT; pip in the
# image then needs it too.
install_certificate() {
  local root=$1
  if [ -n "${PIP_CERT:-}" ]; then
    cp "$PIP_CERT" "$root/etc/ssl/standin.pem"
    printf '[global]\ncert = /etc/ssl/standin.pem\n' >"$root/etc/pip.conf"
  fi
}

case ${1:-} in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*)
  echo "usage: docker/standin.sh amd64|arm64" >&2
  exit 2
  ;;
esac
arch=$1
require_root "to run debootstrap"
require_command debootstrap "apt-get install debootstrap"
require_runnable "$machine"
engine=$(choose_engine)
made_of=$(cat "$here/standin.sh" "$here/debian.sh" ${PIP_CERT:+"$PIP_CERT"} | sha256sum)
image=localhost/ffpa-standin:$arch-${made_of:0:12}
if "is_there_with_$engine" "$image"; then
  echo "$image"
  exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "debootstrap: Debian $RELEASE for $arch" >&2
debootstrap --arch="$arch" --variant=minbase --include=ca-certificates \
  "$RELEASE" "$work/root" "$(debian_mirror)" >"$work/log" ||
  { tail -n 20 "$work/log" >&2 && exit 1; }
rm -f "$work"/root/var/cache/apt/archives/*.deb
echo "CUDA 12.4 compiler" >&2
install_cuda "$work/root" "$arch" "$machine"
install_certificate "$work/root"
chmod 755 "$work/root"
tar --create --file "$work/root.tar" --directory "$work/root" --exclude ./dev .
"import_with_$engine" "$work/root.tar" "$arch" "$image" >&2
echo "$image"

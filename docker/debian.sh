# shellcheck shell=bash
# Sourced: Debian packages of any release and architecture, unpacked and not installed.

KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# The mirror that this machine's apt uses, unless DEBIAN_MIRROR names one.
debian_mirror() {
  local mirror=${DEBIAN_MIRROR:-}
  if [ -z "$mirror" ] && command -v apt-get >/dev/null; then
    # shellcheck disable=SC2016  # apt's variable
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
      head -n 1)
  fi
  if [ -z "$mirror" ]; then
    echo "error: no Debian mirror is known to apt here: set DEBIAN_MIRROR to one" >&2
    return 1
  fi
  echo "$mirror"
}

# unpack_debs RELEASE ARCHITECTURE FOLDER PACKAGE...: needs no root, checks the signatures.
unpack_debs() {
  local release=$1 arch=$2 folder=$3 apt deb mirror
  shift 3
  mirror=$(debian_mirror)
  apt=$(mktemp -d)
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$folder"
  touch "$apt/status"
  echo "deb [signed-by=$KEYRING] $mirror $release main non-free" >"$apt/sources.list"
  cat >"$apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Sandbox::User "";
CONF
  (
    cd "$apt" || exit
    APT_CONFIG=$apt/apt.conf apt-get -qq update
    APT_CONFIG=$apt/apt.conf apt-get -qq download "$@"
  )
  for deb in "$apt"/*.deb; do
    dpkg-deb --extract "$deb" "$folder"
  done
  rm -r "$apt"
}

# unpack_wheels MACHINE FOLDER REQUIREMENT...: wheels for x86_64 or aarch64, unpacked likewise.
unpack_wheels() {
  local machine=$1 folder=$2 wheels wheel tag
  shift 2
  wheels=$(mktemp -d)
  local tags=()
  for tag in manylinux2014 manylinux_2_17 manylinux_2_28; do
    tags+=(--platform "${tag}_$machine")
  done
  python3 -m pip download --quiet --no-deps --only-binary :all: "${tags[@]}" \
    --dest "$wheels" "$@"
  for wheel in "$wheels"/*.whl; do
    python3 -m zipfile --extract "$wheel" "$folder"
  done
  rm -r "$wheels"
}

# Shared by the tools scripts: where things are, and installing what is missing. Sourced, not run.
# shellcheck shell=bash
set -euo pipefail

CIUIC_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# Downloads, virtual environments, extracted corpora: outside the checkout, so that a fresh clone is quick.
CIUIC_CACHE=${CIUIC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ciuickafka}
export CIUIC_ROOT CIUIC_CACHE
# Compilation results are shared between clones and build folders.
export CCACHE_BASEDIR=$CIUIC_ROOT CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-5G}

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# packages_of SECTION…: the names listed under these sections of tools/packages.txt.
packages_of() {
  local section
  for section in "$@"; do
    awk -v want="[$section]" '/^#/ || NF == 0 {next} /^\[/ {on = ($0 == want); next} on' "$CIUIC_ROOT/tools/packages.txt"
  done | sort -u
}

# install_packages SECTION…: installs what is missing, as root or by sudo; says what to run where neither is possible.
install_packages() {
  local missing=() name
  while read -r name; do
    dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null | grep -q '^ii' || missing+=("$name")
  done < <(packages_of "$@")
  [ ${#missing[@]} -eq 0 ] && return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "these packages are missing: ${missing[*]}; install them as root with apt-get install"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=600 -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "apt-get could not install the packages named above"
  fi
  rm -f "$log"
}

# build_preset PRESET TARGET…: configures once and builds; prints only what matters. No target: everything.
build_preset() {
  local preset=$1
  shift
  local folder=$CIUIC_ROOT/build/$preset
  if [ ! -f "$folder/build.ninja" ]; then
    mkdir -p "$folder"
    (cd "$CIUIC_ROOT" && cmake --preset "$preset") >"$folder/configure.log" 2>&1 || {
      tail -n 30 "$folder/configure.log" >&2
      die "cmake could not configure preset $preset"
    }
  fi
  (cd "$CIUIC_ROOT" && ninja -C "$folder" -j "${CIUIC_JOBS:-$(nproc)}" "$@")
}

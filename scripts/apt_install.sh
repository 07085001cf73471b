#!/bin/sh
# apt_install.sh PACKAGE...: installs Debian packages as root or through sudo. Where neither is to be had it says what
# to run and exits with 3.
set -eu
if [ "$(id -u)" = 0 ]; then
  sudo=
elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
  sudo=sudo
else
  sudo=missing
fi
if [ "$sudo" = missing ] || ! command -v apt-get >/dev/null; then
  echo "Pageloom needs these packages and cannot install them itself here: $*" >&2
  echo "On Debian or Ubuntu: sudo apt-get install $*   Then run the same command again." >&2
  exit 3
fi
echo "Installing with apt-get: $*"
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"

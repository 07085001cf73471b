#!/bin/sh
# setup.sh demo|test: makes .venv with a Python of 3.11 or newer and the project's Python packages, then goes on in
# setup.py. Quick where nothing changed.
set -eu
cd "$(dirname "$0")/.."

find_python() {
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  return 1
}

if ! .venv/bin/python -c '' 2>/dev/null; then
  python=$(find_python) || { scripts/apt_install.sh python3 python3-venv && python=$(find_python); } ||
    { scripts/apt_install.sh python3.11 python3.11-venv && python=$(find_python); } ||
    { echo "Pageloom needs Python 3.11 or newer with its venv module." >&2; exit 3; }
  echo "Python packages: a virtual environment from $python"
  "$python" -m venv --clear .venv
fi

# The folder is part of the stamp: an editable install knows the project by its path.
stamp=".venv/pageloom-stamp"
wanted="$(sha256sum pyproject.toml) $PWD"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  echo "Python packages: installing …"
  .venv/bin/python -m pip install -q --disable-pip-version-check --editable '.[native,tab,worker,test]'
  echo "$wanted" >"$stamp"
fi
exec .venv/bin/python scripts/setup.py "$@"

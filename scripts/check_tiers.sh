#!/usr/bin/env bash
# PagedAttention's whole conformance matrix on each tier of this machine's adapter, and on the one that it takes by
# itself with no more than WebGPU promises: scripts/check_tiers.sh FOLDER [options of `pageloom check`]
# leaves a report of each in FOLDER, FOLDER/TIER.json and .txt, and exits with 1 where any case failed.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/py"
python="${PYTHON:-.venv/bin/python}"
folder="${1:?a folder for the reports}"
shift
mkdir -p "$folder"
failed=0

check() {
  local name="$1"
  shift
  echo "== $name"
  "$python" -m pageloom check --json "$folder/$name.json" "$@" >"$folder/$name.txt" || failed=1
  tail -n 3 "$folder/$name.txt"
}

for tier in direct-gpu direct-software gather-then-flash; do
  check "$tier" --tier "$tier" "$@"
done
check baseline --baseline "$@"
exit "$failed"

#!/bin/sh
# sanitize_cpu.sh [OPTION...]: the CPU kernels built with the address and undefined-behaviour sanitizers, apart from those
# that are installed, and `pageloom check --backend cpu OPTION...` run on them. A finding ends it with a failure.
set -eu
cd "$(dirname "$0")/.."
site="$PWD/build/cpu-sanitized"
.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --target "$site" \
  -C cmake.define.PAGELOOM_SANITIZE=address,undefined ./py/pageloom-cpu
# Memory of Python's and numpy's own keeping would hide what is written past its end: it comes from malloc instead. Python
# itself does not free all that it has at its end, so leaks are not looked for.
env LD_PRELOAD="$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH="$site" \
  .venv/bin/python -m pageloom check --backend cpu "$@"

"""Peak memory of one prefill over its inputs and outputs: `bench_cpu_memory WHO ROWS HEADS`, each in a fresh process.

Needs Linux: its peak of the resident memory can be set back.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pageloom.commands.bench_cpu_shapes import CpuShape

Who = Literal["flash", "naive", "onnxruntime flash", "onnxruntime naive"]
WHO: tuple[Who, ...] = ("flash", "naive", "onnxruntime flash", "onnxruntime naive")
SHAPES = ((2048, 16), (4096, 16), (4096, 32))
"""Rows and query heads."""
WANTED_BYTES = 40e6
"""At most, of ours on the flash tier, whatever the heads."""
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_SET_PEAK_BACK = "5"


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes over what was resident before the call."""

    who: Who
    rows: int
    num_heads: int
    num_bytes: int


def can_measure() -> bool:
    """Whether this system tells a process's peak."""
    return _CLEAR.exists()


def measure_peaks(threads: int, *, with_peer: bool, quick: bool) -> Iterator[Peak]:
    """One after another."""
    for rows, num_heads in SHAPES[:1] if quick else SHAPES:
        for who in WHO if with_peer else WHO[:2]:
            command = [sys.executable, "-m", __name__, who, str(rows), str(num_heads), str(threads)]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            yield Peak(who, rows, num_heads, int(ran.stdout))


def main(who: Who, rows: int, num_heads: int, threads: int) -> None:
    """Make the call once and print the peak."""
    call = _call(who, CpuShape("prefill", rows, rows, num_heads, 8, "int8"), threads)
    before = _resident("VmRSS")
    _CLEAR.write_text(_SET_PEAK_BACK)
    call()
    print(max(0, _resident("VmHWM") - before))


def _call(who: Who, shape: CpuShape, threads: int) -> Callable[[], object]:
    from pageloom.backends.cpu.operators import CpuOperators  # noqa: PLC0415 - not counted where a peer runs
    from pageloom.commands.bench_cpu_calls import group_query_inputs, onnxruntime_call, record_group_query  # noqa: PLC0415

    if who.startswith("onnxruntime"):
        return onnxruntime_call(shape, threads, flash=who.endswith("flash"))
    call = record_group_query(
        CpuOperators(threads=threads), shape, group_query_inputs(shape), "flash" if who == "flash" else "naive"
    )
    call.outputs["output"].fill(0)
    return call


def _resident(field: str) -> int:
    """Bytes of a field of this process's status, which has them in units of 1,024."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))  # type: ignore[arg-type]

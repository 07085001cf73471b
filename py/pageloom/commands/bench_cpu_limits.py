"""What numpy's BLAS reaches on this machine, as limits beside the kernels' times: `bench_cpu_limits THREADS BYTES...`

A program of its own, since BLAS reads its number of threads as it is loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from pageloom.commands.bench_pairs import time_alone

MATRIX = 1536
REPEATS = 5
_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class CpuLimits:
    """`operations` a second of a float32 matrix product; `read_seconds` of as many bytes, read again and again."""

    operations: float
    read_seconds: dict[int, float]

    def limit_seconds(self, num_bytes: int, num_operations: int) -> float:
        """The least time of a call that moves and computes as much; `num_bytes` is one of those measured."""
        return max(self.read_seconds[num_bytes], num_operations / self.operations)


def measure_limits(threads: int, sizes: Collection[int]) -> CpuLimits:
    """The limits with `threads` threads, for calls that move `sizes` bytes."""
    command = [sys.executable, "-m", __name__, str(threads), *map(str, sizes)]
    environment = os.environ | dict.fromkeys(_VARIABLES, str(threads))
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found = json.loads(ran.stdout)
    return CpuLimits(found["operations"], dict(zip(sizes, found["read_seconds"], strict=True)))


def main(sizes: list[int]) -> None:
    """Measure with the threads that the environment says, and print the limits as JSON."""
    import numpy as np  # noqa: PLC0415 - reads the environment

    matrix = np.ones((MATRIX, MATRIX), np.float32)
    product = np.empty_like(matrix)
    seconds = min(time_alone(lambda: np.matmul(matrix, matrix, out=product), times=REPEATS))
    reads = []
    for size in sizes:
        vector = np.ones(max(1, size // 4), np.float32)
        reads.append(min(time_alone(partial(np.dot, vector, vector), times=REPEATS)))
    print(json.dumps({"operations": 2 * MATRIX**3 / seconds, "read_seconds": reads}))


if __name__ == "__main__":
    main([int(size) for size in sys.argv[2:]])

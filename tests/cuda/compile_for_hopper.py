"""Compile, without a GPU, the kernels of the cases named as arguments for compute capability 9.0; says how many.

Triton's interpreter, which runs kernels where there is no GPU, takes what its compiler refuses. Run it in a process of
its own: it replaces the driver, and launches nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from pageloom.attention.cases.matrix import all_cases
from pageloom.backends.cuda import CudaOperators, attend, operators
from pageloom.backends.cuda.availability import DeviceFacts
from pageloom.conformance.run_cuda import CudaCaseRunner


class Hopper:
    """As much of a driver as compiling asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


compiled: set[str] = set()
launch = JITFunction.run


def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
    kernel = launch(self, *args, grid=grid, warmup=True, **options)
    compiled.add(kernel.hash)
    return kernel


def main(names: list[str]) -> None:
    driver.set_active(Hopper())
    JITFunction.run = compile_only
    operators.device_facts = lambda device: DeviceFacts("a GPU to compile for", (9, 0), 132, 0, "no cuDNN", "")
    attend.overlaps_launches = lambda device: True
    cases = {case.name: case for case in all_cases()}
    for name in names:
        for tier in (None, "triton"):
            runner = CudaCaseRunner(CudaOperators("cpu"), torch.device("cpu"), tier)
            detail = runner.run(cases[name].vector()).detail
            if "CompilationError" in detail:
                sys.exit(f"{name}: {detail}")
    print(len(compiled))


if __name__ == "__main__":
    main(sys.argv[1:])

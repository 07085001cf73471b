"""Calls from many threads of Python at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from kernels_kit import needs_kernels, operator_of

from pageloom.attention.cases.matrix import all_cases
from pageloom.backends.cpu.operators import CpuOperators

pytestmark = needs_kernels
CALLERS = 200
NAMES = (
    "paged/int8/per_tensor/decode", "paged/sink/decode", "group_query/long/decode", "group_query/float32/prompt",
    "group_query/int4_per_channel/decode", "onnx/opset_24_causal/square", "onnx/softcap",
)  # fmt: skip
CASES = {case.name: case for case in all_cases(quick=True) if case.name in NAMES}


def test_two_hundred_callers_get_the_answers_of_one() -> None:
    operators = CpuOperators(threads=2)
    wanted = {name: operator_of(operators, case)(**case.inputs()) for name, case in CASES.items()}
    start = threading.Barrier(CALLERS)

    def call(caller: int) -> list[str]:
        case = CASES[NAMES[caller % len(NAMES)]]
        operator, inputs = operator_of(operators, case), case.inputs()
        start.wait()
        outputs = operator(**inputs)
        return [
            name
            for name, array in wanted[case.name].items()
            if not np.allclose(outputs[name], array, atol=1e-5, equal_nan=True)
        ]

    with ThreadPoolExecutor(CALLERS) as pool:
        assert [wrong for wrong in pool.map(call, range(CALLERS)) if wrong] == []


def test_recorded_calls_of_several_threads_share_the_pool() -> None:
    operators = CpuOperators(threads=2)
    case = CASES["group_query/long/decode"]
    calls = [operator_of(operators, case).record(**case.inputs()) for _ in range(8)]
    wanted = calls[0]()["output"].copy()

    def repeat(call: object) -> float:
        return max(float(np.abs(call()["output"] - wanted).max()) for _ in range(50))  # type: ignore[operator]

    with ThreadPoolExecutor(len(calls)) as pool:
        assert max(pool.map(repeat, calls)) < 1e-5


def test_the_pool_may_change_its_size_between_calls_of_others() -> None:
    case = CASES["group_query/long/decode"]
    call = operator_of(CpuOperators(threads=2), case).record(**case.inputs())
    wanted = call()["output"].copy()
    stop = threading.Event()
    worst: list[float] = []

    def repeat() -> None:
        while not stop.is_set():
            worst.append(float(np.abs(call()["output"] - wanted).max()))

    caller = threading.Thread(target=repeat)
    caller.start()
    for threads in (1, 3, 2, 1, 4):
        CpuOperators(threads=threads)
    stop.set()
    caller.join()
    assert max(worst) < 1e-5

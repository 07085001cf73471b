"""Calls of ONNX Runtime's CPU kernels, bound to their arrays once. Needs the packages onnx and onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime

from pageloom.attention.numerics.dtypes import Array
from pageloom.conformance.onnx_model import make_model

VERSION: str = onnxruntime.__version__
_NO_FLASH = "ORT_GQA_DISABLE_FLASH_ATTENTION"
"""Read as a session makes its kernels."""


def bind(
    operator: str, spec: Any, inputs: Mapping[str, Array], shared: Mapping[str, str], *, threads: int, flash: bool
) -> Callable[[], None]:
    """A call in a session of its own with `threads` threads, which lives as long as the call does.

    `output` has the query's shape; `shared` maps the other outputs to the inputs whose memory they are.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    dtypes = {"output": inputs["query"].dtype} | {name: inputs[source].dtype for name, source in shared.items()}
    model = make_model(operator, spec, inputs, dtypes)
    with _environment(_NO_FLASH, "0" if flash else "1"):
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array, "cpu", 0) for name, array in inputs.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for name, source in shared.items():
        binding.bind_ortvalue_output(name, values[source])
    output = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(inputs["query"]), "cpu", 0)
    binding.bind_ortvalue_output("output", output)
    run_options = onnxruntime.RunOptions()
    return lambda: session.run_with_iobinding(binding, run_options)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before

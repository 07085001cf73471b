"""One operator run by ONNX Runtime's CPU provider, whose kernels share nothing with this project."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper
from onnx.helper import np_dtype_to_tensor_dtype

OUTPUTS = {
    "GroupQueryAttention": ("output", "present_key", "present_value", "output_qk"),
    "Attention": ("Y", "present_key", "present_value", "qk_matmul_output"),
    "TensorScatter": ("present_cache",),
}
DOMAINS = {"GroupQueryAttention": "com.microsoft", "Attention": "", "TensorScatter": ""}


def attributes_of(spec: Any, *, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """The attributes of `spec` that differ from their defaults, as ONNX has them."""
    given = {}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name not in leave_out and (field.default is MISSING or value != field.default):
            given[field.name] = int(value) if isinstance(value, bool) else value
    return given


def run_operator(
    operator: str,
    attributes: dict[str, Any],
    input_names: tuple[str, ...],
    inputs: dict[str, np.ndarray],
    outputs: dict[str, np.dtype],
    *,
    opset: int = 24,
) -> dict[str, np.ndarray]:
    """The `outputs` (name -> element type) of one node; raises what ONNX Runtime raises where it refuses."""
    used = [name if name in inputs else "" for name in input_names]
    while not used[-1]:
        used.pop()
    node = helper.make_node(
        operator,
        used,
        [name if name in outputs else "" for name in OUTPUTS[operator]],
        domain=DOMAINS[operator],
        **attributes,
    )
    graph = helper.make_graph(
        [node],
        operator,
        [helper.make_tensor_value_info(n, np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(n, np_dtype_to_tensor_dtype(d), None) for n, d in outputs.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(outputs, session.run(list(outputs), inputs), strict=True))

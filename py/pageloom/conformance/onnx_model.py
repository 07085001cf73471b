"""One call of an operator as an ONNX model of one node, for ONNX Runtime. Needs the packages onnx and numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from onnx import helper
from onnx.helper import np_dtype_to_tensor_dtype

from pageloom.attention.group_query.check import INPUT_NAMES as GROUP_QUERY_INPUTS
from pageloom.attention.numerics.dtypes import Array
from pageloom.attention.onnx.check import INPUT_NAMES as ATTENTION_INPUTS
from pageloom.attention.scatter.spec import INPUT_NAMES as SCATTER_INPUTS

NODES: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "group_query_attention": (
        "GroupQueryAttention",
        "com.microsoft",
        GROUP_QUERY_INPUTS,
        ("output", "present_key", "present_value", "output_qk"),
    ),
    "onnx_attention": ("Attention", "", ATTENTION_INPUTS, ("Y", "present_key", "present_value", "qk_matmul_output")),
    "tensor_scatter": ("TensorScatter", "", SCATTER_INPUTS, ("present_cache",)),
}
"""operator -> (ONNX name, domain, inputs, outputs)"""


def make_model(operator: str, spec: Any, inputs: Mapping[str, Array], outputs: Mapping[str, np.dtype[Any]]) -> bytes:
    """The model of one node with the attributes `spec`, these inputs, and the outputs asked for."""
    node_type, domain, input_names, output_names = NODES[operator]
    used = [name if name in inputs else "" for name in input_names]
    while not used[-1]:
        used.pop()
    given = [name if name in outputs else "" for name in output_names]
    node = helper.make_node(node_type, used, given, domain=domain, **_attributes(spec))
    graph = helper.make_graph(
        [node],
        node_type,
        [
            helper.make_tensor_value_info(name, np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info(name, np_dtype_to_tensor_dtype(dtype), None) for name, dtype in outputs.items()],
    )
    opsets = [helper.make_opsetid("", getattr(spec, "opset", 24)), helper.make_opsetid("com.microsoft", 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString()
    return model


def _attributes(spec: Any) -> dict[str, Any]:
    """The attributes that differ from their defaults, as ONNX has them; the opset is the model's."""
    given = {}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name != "opset" and (field.default is MISSING or value != field.default):
            given[field.name] = int(value) if isinstance(value, bool) else value
    return given

"""A checked call of ONNX Attention, and the arrays of its outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array, dtype_name
from pageloom.attention.onnx.check import OnnxAttentionShape
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.tensors import DType, TensorInfo
from pageloom.backends.cpu.context import CpuContext

OUTPUT_NAMES = ("Y", "present_key", "present_value", "qk_matmul_output")
PRESENTS = {"present_key": ("past_key", "K"), "present_value": ("past_value", "V")}
"""Each with the past and the new rows that it joins."""


@dataclass(frozen=True, slots=True)
class OnnxAttentionCall:
    """A checked call, and the names of the outputs that it computes."""

    context: CpuContext
    spec: OnnxAttentionSpec
    shape: OnnxAttentionShape
    inputs: dict[str, Array]
    given: dict[str, Array]
    wanted: frozenset[str]

    @property
    def value_dtype(self) -> DType:
        """Element type of V, which may differ from that of Q and K."""
        return dtype_name(self.inputs["V"])

    def outputs(self) -> dict[str, Array]:
        """The arrays of the outputs wanted: those given, and new ones."""
        infos = {name: output_info(self.shape, self.value_dtype, name) for name in OUTPUT_NAMES if name in self.wanted}
        return {
            name: self.given.get(name, np.empty(info.shape, NUMPY_DTYPES[info.dtype])) for name, info in infos.items()
        }


def output_info(shape: OnnxAttentionShape, value_dtype: DType, name: str) -> TensorInfo:
    """Element type and shape of the output `name`."""
    lead = (shape.batch_size, shape.kv_num_heads, shape.total_sequence_length)
    rows = (shape.batch_size, shape.q_num_heads, shape.q_sequence_length)
    if name == "present_key":
        return TensorInfo(shape.dtype, (*lead, shape.head_size))
    if name == "present_value":
        return TensorInfo(value_dtype, (*lead, shape.v_head_size))
    if name == "qk_matmul_output":
        return TensorInfo(shape.dtype, (*rows, shape.total_sequence_length))
    if shape.flat:
        return TensorInfo(shape.dtype, (rows[0], rows[2], rows[1] * shape.v_head_size))
    return TensorInfo(shape.dtype, (*rows, shape.v_head_size))

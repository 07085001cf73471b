"""A checked call of GroupQueryAttention, and the arrays of its outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pageloom.attention.group_query.check import GroupQueryAttentionShape
from pageloom.attention.group_query.spec import SIDES, GroupQueryAttentionSpec, Side
from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array
from pageloom.attention.tensors import TensorInfo
from pageloom.backends.cpu.context import CpuContext

PAST: dict[Side, str] = {"k": "past_key", "v": "past_value"}
PRESENT: dict[Side, str] = {"k": "present_key", "v": "present_value"}


@dataclass(frozen=True, slots=True)
class GroupQueryCall:
    """A checked call. `in_place` are the sides whose present is the very array of its past."""

    context: CpuContext
    spec: GroupQueryAttentionSpec
    shape: GroupQueryAttentionShape
    inputs: dict[str, Array]
    given: dict[str, Array]
    in_place: frozenset[Side]

    def outputs(self) -> dict[str, Array]:
        """The arrays of the outputs: those given, and new ones."""
        spec, shape = self.spec, self.shape
        dtype = NUMPY_DTYPES[shape.dtype]
        rows = (shape.batch_size, shape.sequence_length)
        outputs = {"output": np.empty((*rows, spec.num_heads * shape.head_size), dtype)}
        for side in SIDES:
            info = present_info(spec, shape, side)
            outputs[PRESENT[side]] = self.given.get(PRESENT[side], np.zeros(info.shape, NUMPY_DTYPES[info.dtype]))
        if spec.qk_output:
            columns = shape.total_sequence_length
            outputs["output_qk"] = np.empty((rows[0], spec.num_heads, rows[1], columns), dtype)
        return outputs


def present_info(spec: GroupQueryAttentionSpec, shape: GroupQueryAttentionShape, side: Side) -> TensorInfo:
    """Element type and shape of the present of `side`."""
    storage = shape.key_storage if side == "k" else shape.value_storage
    width = storage.row_width(shape.head_size)
    return TensorInfo(storage.tensor_dtype, (shape.batch_size, spec.kv_num_heads, shape.present_length, width))

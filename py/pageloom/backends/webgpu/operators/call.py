"""What every tier of a PagedAttention call starts with: tensors on the device, the step buffer, and the factors."""

from __future__ import annotations

import array
from collections.abc import Mapping
from dataclasses import dataclass

from pageloom.attention.paged.check import PagedAttentionShape
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.webgpu.device import Buffer, Device, DeviceInfo
from pageloom.backends.webgpu.operators.forms import F32_BYTES, factor_names
from pageloom.backends.webgpu.operators.operands import DeviceTensor
from pageloom.backends.webgpu.operators.step import longest_array, step_header
from pageloom.backends.webgpu.operators.workspace import Workspace
from pageloom.backends.webgpu.program import PlannedDispatch
from pageloom.backends.webgpu.programs.elements import element_kind
from pageloom.backends.webgpu.programs.prepare import DecodeGrid, factor_sizes, plan_pack_factors, plan_prepare_metadata

_SECTIONS = {
    "sinks": "head_sink",
    "q_norm": "q_norm_weight",
    "k_norm": "k_norm_weight",
    "k_scale": "k_scale",
    "v_scale": "v_scale",
}
"""The input that each section of `factors` comes from."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose tensors are on the device. Scratch comes from `workspace`."""

    device: Device
    workspace: Workspace
    spec: PagedAttentionSpec
    shape: PagedAttentionShape
    tensors: Mapping[str, DeviceTensor]
    output: DeviceTensor
    log_sum_exp: DeviceTensor | None

    @property
    def info(self) -> DeviceInfo:
        return self.device.info

    def buffer(self, name: str) -> Buffer | None:
        """The buffer of an input, or None where it was not given."""
        return self.tensors[name].buffer if name in self.tensors else None

    def prepare(self, tile_tokens: int, decode_grid: DecodeGrid | None = None) -> tuple[Buffer, PlannedDispatch]:
        """The step buffer, and the dispatch that fills it, and `decode_grid`, from the call's integer tensors."""
        shape = self.shape
        header, words = step_header(shape, tile_tokens)
        step = self.workspace.scratch("step", 4 * words)
        bounds = self.workspace.scratch("bounds", 8)
        self.device.write(step, 0, header)
        self.device.write(bounds, 0, array.array("I", [shape.num_blocks, min(shape.position_limit, 2**31 - 1)]))
        planned = plan_prepare_metadata(
            self.tensors["cumulative_sequence_length"].buffer,
            self.tensors["past_seqlens"].buffer,
            self.tensors["block_table"].buffer,
            self.buffer("slot_mapping"),
            bounds,
            step,
            block_size=shape.block_size,
            tile_tokens=tile_tokens,
            num_items=longest_array(shape, tile_tokens),
            decode_grid=decode_grid,
        )
        return step, planned

    def factors(self) -> tuple[Buffer | None, list[PlannedDispatch]]:
        """The factors of the call, where it has any, and the dispatch that packs them."""
        spec, shape = self.spec, self.shape
        names = factor_names(shape).split()
        if not names:
            return None, []
        sizes = factor_sizes(spec.num_heads, spec.kv_num_heads, shape.head_size)
        packed = self.workspace.scratch("factors", F32_BYTES * sum(sizes[name] for name in names))
        planned = plan_pack_factors(
            {name: self.tensors[_SECTIONS[name]].buffer for name in names},
            packed,
            num_heads=spec.num_heads,
            kv_num_heads=spec.kv_num_heads,
            head_size=shape.head_size,
            kind=element_kind(self.info, shape.dtype),
            key_scale_is_single=shape.key_storage.quant_type == "PER_TENSOR",
            value_scale_is_single=shape.value_storage.quant_type == "PER_TENSOR",
        )
        return packed, [planned]

    def inputs_of_qkv(self) -> tuple[Buffer, ...]:
        """(query,), (query, key) or (query, key, value): those that there are."""
        return tuple(self.tensors[name].buffer for name in ("query", "key", "value") if name in self.tensors)

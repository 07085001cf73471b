"""The direct tiers: metadata and factors, the fused write, and attention over the pages in place."""

from __future__ import annotations

import array
from collections.abc import Mapping

from pageloom.attention.paged.check import PagedAttentionShape, QkvMode
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.webgpu.device import Buffer, Device
from pageloom.backends.webgpu.operators.forms import Bounds, attention_bucket, attention_form, factor_names, write_form
from pageloom.backends.webgpu.operators.operands import DeviceTensor
from pageloom.backends.webgpu.operators.step import max_tiles, step_header
from pageloom.backends.webgpu.operators.workspace import Workspace
from pageloom.backends.webgpu.program import PlannedDispatch
from pageloom.backends.webgpu.programs.attention import plan_attention
from pageloom.backends.webgpu.programs.attention_choice import Variant
from pageloom.backends.webgpu.programs.attention_form import AttentionBuffers, AttentionForm
from pageloom.backends.webgpu.programs.attention_tiles import partials_bytes, query_tile_tokens
from pageloom.backends.webgpu.programs.elements import element_kind
from pageloom.backends.webgpu.programs.kv_write import KvWriteBuffers, plan_kv_write_parts
from pageloom.backends.webgpu.programs.prepare import factor_sizes, plan_pack_factors, plan_prepare_metadata

F32_BYTES = 4
_SECTIONS = {
    "sinks": "head_sink",
    "q_norm": "q_norm_weight",
    "k_norm": "k_norm_weight",
    "k_scale": "k_scale",
    "v_scale": "v_scale",
}
"""The input that each section of `factors` comes from."""

Tensors = Mapping[str, DeviceTensor]


class DirectCall:
    """Plans a call whose tensors are on the device. Scratch comes from `workspace`."""

    def __init__(
        self,
        device: Device,
        workspace: Workspace,
        spec: PagedAttentionSpec,
        shape: PagedAttentionShape,
        tensors: Tensors,
        output: DeviceTensor,
        log_sum_exp: DeviceTensor | None,
    ) -> None:
        self._device = device
        self._workspace = workspace
        self._spec = spec
        self._shape = shape
        self._tensors = tensors
        self._output = output
        self._log_sum_exp = log_sum_exp

    def plan(self, variant: Variant, bounds: Bounds) -> list[PlannedDispatch]:
        """All dispatches, in order."""
        shape, spec, workspace = self._shape, self._spec, self._workspace
        info = self._device.info
        form = attention_form(info, spec, shape, log_sum_exp=self._log_sum_exp is not None)
        bucket, tile_tokens = attention_bucket(shape, bounds), query_tile_tokens(form)
        step, prepare = self._prepare(tile_tokens)
        factors, pack = self._factors()
        query = workspace.scratch("query in f32", F32_BYTES * shape.num_tokens * spec.num_heads * shape.head_size)
        partials = partials_bytes(form, bucket.max_sequences, bucket.max_kv_len) if variant == "gpu" else 0
        buffers = AttentionBuffers(
            query=query,
            key_cache=self._tensors["key_cache"].buffer,
            value_cache=self._buffer("value_cache"),
            output=self._output.buffer,
            step=step,
            partials=workspace.scratch("attention partials", partials) if partials else None,
            sums=self._sums(form) if variant == "software" else None,
            factors=factors if form.factors else None,
            log_sum_exp=self._log_sum_exp.buffer if self._log_sum_exp else None,
        )
        attend = plan_attention(info, form, buffers, bucket=bucket, tile_tokens=tile_tokens, variant=variant)
        return [prepare, *pack, *self._write(query, step, factors), *attend]

    def _buffer(self, name: str) -> Buffer | None:
        return self._tensors[name].buffer if name in self._tensors else None

    def _prepare(self, tile_tokens: int) -> tuple[Buffer, PlannedDispatch]:
        shape = self._shape
        header, words = step_header(shape, tile_tokens)
        step = self._workspace.scratch("step", 4 * words)
        bounds = self._workspace.scratch("bounds", 8)
        self._device.write(step, 0, header)
        self._device.write(bounds, 0, array.array("I", [shape.num_blocks, shape.position_limit]))
        planned = plan_prepare_metadata(
            self._tensors["cumulative_sequence_length"].buffer,
            self._tensors["past_seqlens"].buffer,
            self._tensors["block_table"].buffer,
            self._buffer("slot_mapping"),
            bounds,
            step,
            block_size=shape.block_size,
            tile_tokens=tile_tokens,
            num_items=max(
                shape.num_tokens,
                shape.batch_size + 2,
                (shape.batch_size + 1) * shape.max_blocks_per_sequence,
                max_tiles(shape, tile_tokens),
            ),
        )
        return step, planned

    def _factors(self) -> tuple[Buffer | None, list[PlannedDispatch]]:
        spec, shape = self._spec, self._shape
        names = factor_names(shape).split()
        if not names:
            return None, []
        sizes = factor_sizes(spec.num_heads, spec.kv_num_heads, shape.head_size)
        packed = self._workspace.scratch("factors", F32_BYTES * sum(sizes[name] for name in names))
        planned = plan_pack_factors(
            {name: self._tensors[_SECTIONS[name]].buffer for name in names},
            packed,
            num_heads=spec.num_heads,
            kv_num_heads=spec.kv_num_heads,
            head_size=shape.head_size,
            kind=element_kind(self._device.info, shape.dtype),
            key_scale_is_single=shape.key_storage.quant_type == "PER_TENSOR",
            value_scale_is_single=shape.value_storage.quant_type == "PER_TENSOR",
        )
        return packed, [planned]

    def _sums(self, form: AttentionForm) -> Buffer | None:
        if form.output_kind == "f32":
            return None
        size = F32_BYTES * self._shape.num_tokens * form.num_heads * form.v_head_size
        return self._workspace.scratch("sums in f32", size)

    def _write(self, query: Buffer, step: Buffer, factors: Buffer | None) -> list[PlannedDispatch]:
        shape = self._shape
        names = {
            QkvMode.PACKED: ("query",),
            QkvMode.SEPARATE: ("query", "key", "value"),
            QkvMode.LATENT: ("query", "key"),
        }[shape.mode]
        buffers = KvWriteBuffers(
            inputs=tuple(self._tensors[name].buffer for name in names),
            query_out=query,
            key_cache=self._tensors["key_cache"].buffer,
            value_cache=self._buffer("value_cache"),
            step=step,
            rope=(self._tensors["cos_cache"].buffer, self._tensors["sin_cache"].buffer) if shape.rotary_dim else (),
            factors=factors,
        )
        form = write_form(self._device.info, self._spec, shape)
        return plan_kv_write_parts(self._device.info, form, buffers, max_tokens=shape.num_tokens)

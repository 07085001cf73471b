"""Gather-then-flash: one small program for each change of shape, and attention over dense tensors between them.

The tier that every other is held against, and that runs where they cannot: split_packed_qkv, rotary, scatter_kv,
gather_kv, unpack_query, flash, repack_output.
"""

from __future__ import annotations

from dataclasses import dataclass

from pageloom.attention.cache_storage import CacheStorage
from pageloom.attention.paged.check import PagedAttentionShape
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.webgpu.device import Buffer
from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.operators.call import Call
from pageloom.backends.webgpu.operators.forms import F32_BYTES, Bounds, attention_form, factor_names, write_form
from pageloom.backends.webgpu.program import ParameterValue, PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.programs.attention_form import bound
from pageloom.backends.webgpu.programs.attention_tiles import query_tile_tokens
from pageloom.backends.webgpu.programs.elements import element_kind

WORKGROUP = 64


def dense_bytes(spec: PagedAttentionSpec, shape: PagedAttentionShape, bounds: Bounds) -> dict[str, int]:
    """The sizes of the dense tensors, all f32. The tokens of no sequence are one sequence more."""
    sequences = shape.batch_size + 1
    rows = F32_BYTES * sequences * bounds.max_query_len * spec.num_heads
    return {
        "dense key": F32_BYTES * sequences * bounds.max_kv_len * spec.kv_num_heads * shape.head_size,
        "padded query": rows * shape.head_size,
        "padded output": rows * shape.v_head_size,
    }


def plan_gather_then_flash(call: Call, bounds: Bounds) -> list[PlannedDispatch]:
    """All dispatches of a call."""
    return _Planner(call, bounds).plan()


@dataclass(slots=True)
class _Rows:
    """Q, K and V as f32 `[num_tokens, heads, head_size]`."""

    query: Buffer
    key: Buffer
    value: Buffer | None


class _Planner:
    def __init__(self, call: Call, bounds: Bounds) -> None:
        self._call = call
        self._bounds = bounds
        self._form = attention_form(call.info, call.spec, call.shape, log_sum_exp=call.log_sum_exp is not None)
        self._sequences = call.shape.batch_size + 1
        self._step, self._prepare = call.prepare(query_tile_tokens(self._form))
        self._factors, self._pack = call.factors()
        self._sizes = dense_bytes(call.spec, call.shape, bounds)

    def plan(self) -> list[PlannedDispatch]:
        rows, split = self._split_packed_qkv()
        rotate = self._rotary(rows)
        scatter = self._scatter("key", rows.key) + self._scatter("value", rows.value)
        mapped = self._call.workspace.scratch("mapped", 4 * self._sequences * self._bounds.max_kv_len)
        keys, gather_keys = self._gather("key", mapped)
        values, gather_values = (None, []) if self._form.latent else self._gather("value", None)
        return [
            self._prepare,
            *self._pack,
            split,
            *rotate,
            *scatter,
            *gather_keys,
            *gather_values,
            *self._attend(rows.query, keys, values, mapped),
        ]

    def _planned(
        self, name: str, items: int, buffers: tuple[Buffer, ...], **parameters: ParameterValue
    ) -> PlannedDispatch:
        key = ProgramKey.of(f"gather_then_flash/{name}.wgsl.j2", workgroup_size=WORKGROUP, **parameters)
        return PlannedDispatch(key, buffers, split_grid(-(-items // WORKGROUP)), name.replace("_", " "))

    def _split_packed_qkv(self) -> tuple[_Rows, PlannedDispatch]:
        call, shape, spec = self._call, self._call.shape, self._call.spec

        def rows(name: str, heads: int) -> Buffer:
            return call.workspace.scratch(f"{name} in f32", F32_BYTES * shape.num_tokens * heads * shape.head_size)

        value = None if spec.latent else rows("value", spec.kv_num_heads)
        split = _Rows(rows("query", spec.num_heads), rows("key", spec.kv_num_heads), value)
        buffers = bound(
            *call.inputs_of_qkv(),
            split.query,
            split.key,
            split.value,
            self._step,
            self._factors if shape.has_qk_norm else None,
        )
        planned = self._planned(
            "split_packed_qkv",
            shape.num_tokens * spec.num_heads,
            buffers,
            input=write_form(call.info, spec, shape).input,
            input_kind=element_kind(call.info, shape.dtype),
            normalised=shape.has_qk_norm,
            epsilon=float(spec.qk_norm_epsilon),
            **self._heads(),
        )
        return split, planned

    def _heads(self) -> dict[str, ParameterValue]:
        return {
            "num_heads": self._form.num_heads,
            "kv_num_heads": self._form.kv_num_heads,
            "head_size": self._form.head_size,
            "factors": factor_names(self._call.shape),
        }

    def _rotary(self, rows: _Rows) -> list[PlannedDispatch]:
        call, shape, spec = self._call, self._call.shape, self._call.spec
        if not shape.rotary_dim:
            return []
        tables = (call.tensors["cos_cache"].buffer, call.tensors["sin_cache"].buffer)
        return [
            self._planned(
                "rotary",
                shape.num_tokens * heads * shape.rotary_dim // 2,
                (buffer, *tables, self._step),
                heads=heads,
                head_size=shape.head_size,
                rope_dim=shape.rotary_dim,
                rope_offset=spec.rotary_offset,
                interleaved=bool(spec.rotary_interleaved),
                kind=element_kind(call.info, shape.dtype),
            )
            for buffer, heads in ((rows.query, spec.num_heads), (rows.key, spec.kv_num_heads))
        ]

    def _storage(self, side: str) -> CacheStorage:
        return self._call.shape.key_storage if side == "key" else self._call.shape.value_storage

    def _scatter(self, side: str, rows: Buffer | None) -> list[PlannedDispatch]:
        if rows is None:
            return []
        storage = self._storage(side)
        return [
            self._planned(
                "scatter_kv",
                self._call.shape.num_tokens * self._form.kv_num_heads * self._form.head_size // 4,
                bound(
                    rows,
                    self._call.tensors[f"{side}_cache"].buffer,
                    self._step,
                    self._factors if storage.quantized else None,
                ),
                kind=element_kind(self._call.info, storage.element),
                scale=f"{side[0]}_scale" if storage.quantized else "none",
                **self._heads(),
            )
        ]

    def _gather(self, side: str, mapped: Buffer | None) -> tuple[Buffer, list[PlannedDispatch]]:
        storage = self._storage(side)
        dense = self._call.workspace.scratch(f"dense {side}", self._sizes["dense key"])
        planned = self._planned(
            "gather_kv",
            self._sizes["dense key"] // 16,
            bound(
                self._call.tensors[f"{side}_cache"].buffer,
                dense,
                self._step,
                mapped,
                self._factors if storage.quantized else None,
            ),
            kind=element_kind(self._call.info, storage.element),
            scale=f"{side[0]}_scale" if storage.quantized else "none",
            marks=mapped is not None,
            block_size=self._form.block_size,
            max_kv_len=self._bounds.max_kv_len,
            **self._heads(),
        )
        return dense, [planned]

    def _attend(self, query: Buffer, keys: Buffer, values: Buffer | None, mapped: Buffer) -> list[PlannedDispatch]:
        call, form, bounds = self._call, self._form, self._bounds
        padded_query = call.workspace.scratch("padded query", self._sizes["padded query"])
        padded_output = call.workspace.scratch("padded output", self._sizes["padded output"])
        has_sinks = form.sink == "factors"
        unpack = self._planned(
            "unpack_query",
            self._sizes["padded query"] // 16,
            (query, padded_query, self._step),
            num_heads=form.num_heads,
            head_size=form.head_size,
            max_query_len=bounds.max_query_len,
        )
        flash = self._planned(
            "flash",
            self._sequences * bounds.max_query_len * form.num_heads,
            bound(
                padded_query,
                keys,
                values,
                mapped,
                padded_output,
                self._step,
                self._factors if has_sinks else None,
                call.log_sum_exp.buffer if call.log_sum_exp else None,
            ),
            **form.parameters("block_size", "key_kind", "value_kind", "output_kind", "scaled_by", "factors"),
            scale=float(call.spec.logit_scale(form.head_size)),
            scaled_by="none",
            factors=factor_names(call.shape) if has_sinks else "",
            max_query_len=bounds.max_query_len,
            max_kv_len=bounds.max_kv_len,
        )
        repack = self._planned(
            "repack_output",
            call.shape.num_tokens * form.num_heads * form.v_head_size // 4,
            (padded_output, call.output.buffer, self._step),
            num_heads=form.num_heads,
            v_head_size=form.v_head_size,
            max_query_len=bounds.max_query_len,
            kind=form.output_kind,
        )
        return [unpack, flash, repack]

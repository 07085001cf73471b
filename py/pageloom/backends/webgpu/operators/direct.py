"""The direct tiers: the fused write of K and V, and attention over the pages in place."""

from __future__ import annotations

from pageloom.backends.webgpu.device import Buffer
from pageloom.backends.webgpu.operators.call import Call
from pageloom.backends.webgpu.operators.forms import (
    F32_BYTES,
    Bounds,
    attention_bucket,
    attention_form,
    query_bytes,
    write_form,
)
from pageloom.backends.webgpu.program import PlannedDispatch
from pageloom.backends.webgpu.programs.attention import plan_attention
from pageloom.backends.webgpu.programs.attention_choice import AttentionBucket, Variant
from pageloom.backends.webgpu.programs.attention_decode import decode_tile, partials_bytes
from pageloom.backends.webgpu.programs.attention_form import AttentionBuffers, AttentionForm
from pageloom.backends.webgpu.programs.attention_tiles import query_tile_tokens
from pageloom.backends.webgpu.programs.kv_write import KvWriteBuffers, plan_kv_write_parts
from pageloom.backends.webgpu.programs.prepare import DecodeGrid


def plan_direct(call: Call, variant: Variant, bounds: Bounds) -> list[PlannedDispatch]:
    """All dispatches of a call on one of the direct tiers."""
    shape, workspace = call.shape, call.workspace
    form = attention_form(call.info, call.spec, shape, log_sum_exp=call.log_sum_exp is not None)
    bucket, tile_tokens = attention_bucket(shape, bounds), query_tile_tokens(form)
    decode_grid = _decode_grid(call, form, bucket) if variant == "gpu" and bounds.is_loose else None
    step, prepare = call.prepare(tile_tokens, decode_grid)
    factors, pack = call.factors()
    query = workspace.scratch("query in f32", query_bytes(call.spec, shape))
    partials = partials_bytes(form, call.info, bucket.max_sequences, bucket.max_kv_len) if variant == "gpu" else 0
    needs_sums = variant == "software" and form.output_kind != "f32"
    buffers = AttentionBuffers(
        query=query,
        key_cache=call.tensors["key_cache"].buffer,
        value_cache=call.buffer("value_cache"),
        output=call.output.buffer,
        step=step,
        partials=workspace.scratch("attention partials", partials) if partials else None,
        sums=workspace.scratch("sums in f32", F32_BYTES * call.output.info.num_elements) if needs_sums else None,
        factors=factors if form.factors else None,
        log_sum_exp=call.log_sum_exp.buffer if call.log_sum_exp else None,
        decode_grid=decode_grid.buffer if decode_grid else None,
    )
    attend = plan_attention(call.info, form, buffers, bucket=bucket, tile_tokens=tile_tokens, variant=variant)
    return [prepare, *pack, *_plan_write(call, query, step, factors), *attend]


def _decode_grid(call: Call, form: AttentionForm, bucket: AttentionBucket) -> DecodeGrid:
    tile = decode_tile(form, call.info)
    return DecodeGrid(
        buffer=call.workspace.scratch("decode grid", 12),
        groups=form.kv_num_heads * tile.parts(form),
        most_runs=tile.runs(form, bucket.max_sequences, tile.splits(form, bucket.max_kv_len)),
        window=form.window,
        split_parameters=tile.split_parameters,
    )


def _plan_write(call: Call, query: Buffer, step: Buffer, factors: Buffer | None) -> list[PlannedDispatch]:
    buffers = KvWriteBuffers(
        inputs=call.inputs_of_qkv(),
        query_out=query,
        key_cache=call.tensors["key_cache"].buffer,
        value_cache=call.buffer("value_cache"),
        step=step,
        rope=tuple(call.tensors[name].buffer for name in ("cos_cache", "sin_cache") if name in call.tensors),
        factors=factors,
    )
    form = write_form(call.info, call.spec, call.shape)
    return plan_kv_write_parts(call.info, form, buffers, max_tokens=call.shape.num_tokens)

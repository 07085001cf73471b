"""Direct attention over the paged cache, for decodes, prefills and batches of both, as planned dispatches."""

from __future__ import annotations

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.program import PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.programs.attention_choice import (
    AttentionBucket,
    Variant,
    choose_attention,
    why_not_gpu,
)
from pageloom.backends.webgpu.programs.attention_decode import decode_tile, partials_bytes, reduce_workgroup
from pageloom.backends.webgpu.programs.attention_form import AttentionBuffers, AttentionForm, bound
from pageloom.backends.webgpu.programs.attention_software import plan_software_attention
from pageloom.backends.webgpu.programs.attention_tiles import OWN_ROWS, prefill_tile, query_tile_tokens
from pageloom.errors import InvalidArgument, NotSupported


def plan_attention(
    info: DeviceInfo,
    form: AttentionForm,
    buffers: AttentionBuffers,
    *,
    bucket: AttentionBucket,
    tile_tokens: int | None = None,
    variant: Variant | None = None,
) -> list[PlannedDispatch]:
    """Attention of the step's new tokens over the cache that already holds them.

    A key whose block table entry is -1 or past the pool is masked; a row that sees no key is 0. A token's result does
    not depend, bit for bit, on the rest of the batch, nor on the bucket; the two variants, and decode and prefill of
    the gpu variant, differ in rounding.

    `buffers.partials` is scratch of `attention_scratch_bytes`, which layers may share. `tile_tokens` is that of the
    step layout (default `query_tile_tokens(form)`). `variant` overrides `choose_attention`.

    Raises `NotSupported`, with the reason, for what the device cannot do.
    """
    if (variant or choose_attention(info, form, bucket).variant) == "software":
        return [plan_software_attention(form, buffers, max_tokens=bucket.max_tokens)]
    tile_tokens = tile_tokens or query_tile_tokens(form)
    if (reason := why_not_gpu(info, form, bucket, tile_tokens)) is not None:
        raise NotSupported(f"the gpu variant of attention cannot run on this device: {reason}")
    planned = _decode(info, form, buffers, bucket)
    if bucket.max_query_len > 1:
        planned.append(_prefill(info, form, buffers, bucket, tile_tokens))
    return planned


def attention_scratch_bytes(info: DeviceInfo, form: AttentionForm, bucket: AttentionBucket) -> int:
    """Bytes of the `partials` that `plan_attention` asks for with the variant it chooses; 0 for none."""
    if choose_attention(info, form, bucket).variant == "software":
        return 0
    return partials_bytes(form, info, bucket.max_sequences, bucket.max_kv_len)


def _decode(
    info: DeviceInfo, form: AttentionForm, buffers: AttentionBuffers, bucket: AttentionBucket
) -> list[PlannedDispatch]:
    tile = decode_tile(form, info)
    splits = tile.splits(form, bucket.max_kv_len)
    key = ProgramKey.of(
        tile.template,
        **form.parameters("causal", "latent", "v_head_size", *tile.left_out),
        **tile.parameters,
        num_splits=splits,
        heads_per_group=tile.heads_per_group,
        workgroup_size=tile.workgroup_size,
    )
    inputs = (buffers.query, buffers.key_cache, buffers.value_cache)
    runs = tile.runs(form, bucket.max_sequences, splits)
    grid = (form.kv_num_heads * tile.parts(form), runs, bucket.max_sequences)
    if splits == 1:
        bindings = bound(*inputs, buffers.output, buffers.step, buffers.factors, buffers.log_sum_exp)
        return [PlannedDispatch(key, bindings, grid, "attention decode", buffers.decode_grid)]
    needed = partials_bytes(form, info, bucket.max_sequences, bucket.max_kv_len)
    if buffers.partials is None or buffers.partials.size < needed:
        given = "none" if buffers.partials is None else f"{buffers.partials.size} bytes"
        raise InvalidArgument(f"attention decode takes {needed} bytes of scratch; given: {given}", param="partials")
    reduce = ProgramKey.of(
        "paged_attention/decode_reduce.wgsl.j2",
        **form.parameters("causal", "block_size", "key_kind", "value_kind", "softcap", "latent"),
        **tile.split_parameters,
        num_splits=splits,
        workgroup_size=reduce_workgroup(form)[0],
    )
    joined = bound(buffers.partials, buffers.output, buffers.step, buffers.factors, buffers.log_sum_exp)
    return [
        PlannedDispatch(
            key, bound(*inputs, buffers.partials, buffers.step), grid, "attention decode", buffers.decode_grid
        ),
        PlannedDispatch(reduce, joined, (form.num_heads, bucket.max_sequences, 1), "attention reduce"),
    ]


def _prefill(
    info: DeviceInfo, form: AttentionForm, buffers: AttentionBuffers, bucket: AttentionBucket, tile_tokens: int
) -> PlannedDispatch:
    tile = prefill_tile(form, info, tile_tokens)
    key = ProgramKey.of(
        "paged_attention/prefill.wgsl.j2",
        **form.parameters(),
        tile_tokens=tile_tokens,
        heads_per_group=tile.heads_per_group,
        own_rows=OWN_ROWS,
        keys=tile.keys,
        span=tile.span,
    )
    bindings = bound(
        buffers.query,
        buffers.key_cache,
        buffers.value_cache,
        buffers.output,
        buffers.step,
        buffers.factors,
        buffers.log_sum_exp,
    )
    grid = (form.kv_num_heads * tile.parts(form), bucket.max_tiles(tile_tokens), 1)
    return PlannedDispatch(key, bindings, grid, "attention prefill")

"""Direct attention over the paged cache, for decodes, prefills and batches of both, as planned dispatches."""

from __future__ import annotations

from collections.abc import Mapping

from pageloom.backends.webgpu.device import Buffer, DeviceInfo
from pageloom.backends.webgpu.kv_cache import check_block_size
from pageloom.backends.webgpu.limits import why_not
from pageloom.backends.webgpu.program import ParameterValue, PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.programs.attention_choice import (
    DECODE_WORKGROUP,
    SHARES,
    AttentionBucket,
    Variant,
    check_attention,
    choose_attention,
    decode_heads_per_group,
    decode_split,
    decode_splits,
    gpu_needs,
    partials_bytes,
    prefill_heads_per_group,
    prefill_keys,
    query_tile_tokens,
    software_heads_per_thread,
)
from pageloom.backends.webgpu.templates import half_storage
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.model.layer_ops import PagedAttention

SOFTWARE_WORKGROUP = 16
SOFTWARE_KEYS_PER_STEP = 4


def plan_attention(
    info: DeviceInfo,
    op: PagedAttention,
    query: Buffer,
    key_cache: Buffer,
    value_cache: Buffer,
    output: Buffer,
    step: Buffer,
    partials: Buffer | None,
    *,
    bucket: AttentionBucket,
    block_size: int,
    tile_tokens: int | None = None,
    variant: Variant | None = None,
) -> list[PlannedDispatch]:
    """Attention of the step's new tokens over the cache that already holds them.

    `query` and `output` are f32 `[max_tokens, num_heads * head_size]`; the query carries rotary and scale already
    (`plan_kv_write`). The caches are f16 `[num_blocks, block_size, kv_num_heads, head_size]`. A key whose block table
    entry is -1 or past the pool is masked; a row that sees no key is 0. A token's result does not depend, bit for bit,
    on the rest of the batch, nor on the bucket; the two variants, and decode and prefill of the gpu variant, differ in
    rounding.

    `partials` is scratch of `attention_scratch_bytes`, which layers may share. `tile_tokens` is that of the step
    layout (default `query_tile_tokens(op)`). `variant` overrides `choose_attention`.

    Raises `NotSupported`, with the reason, for what the programs or the device cannot do.
    """
    check_block_size(block_size)
    chosen = variant or choose_attention(info, op, bucket).variant
    check_attention(op)
    shared: dict[str, ParameterValue] = {
        "num_heads": op.num_heads,
        "kv_num_heads": op.kv_num_heads,
        "head_size": op.head_size,
        "block_size": block_size,
        "softcap": float(op.softcap),
        "window": op.local_window_size,
        "storage": half_storage(info),
    }
    if chosen == "software":
        return [_software(op, shared, (query, key_cache, value_cache, output, step), bucket)]
    tile_tokens = tile_tokens or query_tile_tokens(op)
    for needs in gpu_needs(op, bucket, tile_tokens):
        reason = why_not(needs, info)
        if reason is not None:
            raise NotSupported(f"the gpu variant of attention cannot run on this device: {reason}")
    planned = _decode(op, shared, query, key_cache, value_cache, output, step, partials, bucket)
    if bucket.max_query_len > 1:
        heads = prefill_heads_per_group(op, tile_tokens)
        key = ProgramKey.of(
            "paged_attention/prefill.wgsl.j2",
            **shared,
            tile_tokens=tile_tokens,
            heads_per_group=heads,
            keys=prefill_keys(op),
        )
        max_tiles = min(bucket.max_tokens, -(-bucket.max_tokens // tile_tokens) + bucket.max_sequences)
        grid = (op.num_heads // heads, max_tiles, 1)
        planned.append(PlannedDispatch(key, (query, key_cache, value_cache, output, step), grid, "attention prefill"))
    return planned


def attention_scratch_bytes(info: DeviceInfo, op: PagedAttention, bucket: AttentionBucket) -> int:
    """Bytes of the `partials` that `plan_attention` asks for with the variant it chooses; 0 for none."""
    return partials_bytes(op, bucket) if choose_attention(info, op, bucket).variant == "gpu" else 0


def _software(
    op: PagedAttention, shared: Mapping[str, ParameterValue], buffers: tuple[Buffer, ...], bucket: AttentionBucket
) -> PlannedDispatch:
    heads_per_thread = software_heads_per_thread(op)
    key = ProgramKey.of(
        "paged_attention/software.wgsl.j2",
        **shared,
        heads_per_thread=heads_per_thread,
        keys_per_step=SOFTWARE_KEYS_PER_STEP,
        workgroup_size=SOFTWARE_WORKGROUP,
    )
    threads = bucket.max_tokens * op.num_heads // heads_per_thread
    return PlannedDispatch(key, buffers, (-(-threads // SOFTWARE_WORKGROUP), 1, 1), "attention")


def _decode(
    op: PagedAttention,
    shared: Mapping[str, ParameterValue],
    query: Buffer,
    key_cache: Buffer,
    value_cache: Buffer,
    output: Buffer,
    step: Buffer,
    partials: Buffer | None,
    bucket: AttentionBucket,
) -> list[PlannedDispatch]:
    splits, heads = decode_splits(op, bucket.max_kv_len), decode_heads_per_group(op)
    key = ProgramKey.of(
        "paged_attention/decode.wgsl.j2",
        **shared,
        num_splits=splits,
        heads_per_group=heads,
        split=decode_split(op),
        shares=SHARES,
        workgroup_size=DECODE_WORKGROUP,
    )
    grid = (op.num_heads // heads, splits, bucket.max_sequences)
    if splits == 1:
        return [PlannedDispatch(key, (query, key_cache, value_cache, output, step), grid, "attention decode")]
    needed = partials_bytes(op, bucket)
    if partials is None or partials.size < needed:
        given = "none" if partials is None else f"{partials.size} bytes"
        raise InvalidArgument(f"attention decode takes {needed} bytes of scratch; given: {given}", param="partials")
    reduce = ProgramKey.of(
        "paged_attention/decode_reduce.wgsl.j2",
        num_heads=op.num_heads,
        head_size=op.head_size,
        window=op.local_window_size,
        num_splits=splits,
        split=decode_split(op),
        shares=SHARES,
        workgroup_size=DECODE_WORKGROUP,
    )
    return [
        PlannedDispatch(key, (query, key_cache, value_cache, partials, step), grid, "attention decode"),
        PlannedDispatch(reduce, (partials, output, step), (op.num_heads, bucket.max_sequences, 1), "attention reduce"),
    ]

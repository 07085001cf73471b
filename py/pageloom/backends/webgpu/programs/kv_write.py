"""Split of packed QKV, QK-norm, rotary and write to the paged cache, fused into one dispatch."""

from __future__ import annotations

from pageloom.backends.webgpu.device import Buffer, DeviceInfo
from pageloom.backends.webgpu.limits import ProgramNeeds, require
from pageloom.backends.webgpu.program import PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.programs.attention_choice import check_attention
from pageloom.backends.webgpu.templates import half_storage
from pageloom.errors import InvalidArgument
from pageloom.model.layer_ops import PagedAttention

MAX_LANES = 32


def plan_kv_write(
    info: DeviceInfo,
    op: PagedAttention,
    qkv: Buffer,
    query_out: Buffer,
    key_cache: Buffer,
    value_cache: Buffer,
    step: Buffer,
    rope_table: Buffer | None,
    q_norm: Buffer | None,
    k_norm: Buffer | None,
    *,
    max_tokens: int,
    lanes: int | None = None,
) -> list[PlannedDispatch]:
    """One dispatch over packed `qkv`, f32 `[max_tokens, (num_heads + 2 * kv_num_heads) * head_size]`.

    Q goes to `query_out`, f32 `[max_tokens, num_heads * head_size]`, normalised, rotated and times `op.scale`. K
    (normalised and rotated) and V go to the caches, f16 `[num_blocks, block_size, kv_num_heads, head_size]`, at the
    step's slots; a slot of -1 or past the pool stores nothing. Values beyond the range of f16 saturate.

    `rope_table` holds `rope_table.rope_table(op.rope, context_length)` and is None exactly where `op.rope` is; `q_norm`
    and `k_norm` are gains, f32 `[head_size]`, and None exactly where `op` names none. `lanes` threads share a head (a
    power of two; default: 1 on software adapters, where barriers are slow).
    """
    check_attention(op)
    _check_given("rope_table", rope_table, op.rope is not None)
    _check_given("q_norm", q_norm, op.q_norm is not None)
    _check_given("k_norm", k_norm, op.k_norm is not None)
    heads, columns = op.num_heads + 2 * op.kv_num_heads, op.head_size // 4
    if lanes is None:
        lanes = 1 if info.adapter_class == "software" else min(MAX_LANES, 1 << (columns.bit_length() - 1))
    workgroup_size = 16 if lanes == 1 else 64
    key = ProgramKey.of(
        "paged_attention/kv_write.wgsl.j2",
        num_heads=op.num_heads,
        kv_num_heads=op.kv_num_heads,
        head_size=op.head_size,
        scale=float(op.scale),
        rope_dim=op.rope.dim if op.rope is not None else 0,
        interleaved=op.rope is not None and op.rope.interleaved,
        normalised=op.q_norm is not None,
        epsilon=float(op.norm_epsilon),
        lanes=lanes,
        workgroup_size=workgroup_size,
        storage=half_storage(info),
    )
    optional = (rope_table, q_norm, k_norm)
    buffers = (qkv, query_out, key_cache, value_cache, step, *(buffer for buffer in optional if buffer is not None))
    grid = (-(-heads * lanes // workgroup_size), max_tokens, 1)
    needs = ProgramNeeds(
        workgroup_size=(workgroup_size, 1, 1),
        workgroup_bytes=4 * workgroup_size,
        binding_bytes=tuple(buffer.size for buffer in buffers),
        grid=grid,
    )
    require(needs, info, f"the KV write of layer {op.layer}")
    return [PlannedDispatch(key, buffers, grid, "kv write")]


def _check_given(name: str, buffer: Buffer | None, wanted: bool) -> None:
    if (buffer is not None) != wanted:
        raise InvalidArgument(f"{name} is {'missing' if wanted else 'given, and the layer has none'}", param=name)

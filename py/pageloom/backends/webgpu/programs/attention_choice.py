"""Which attention programs a device can run, which it should run, and in what tiles: pure arithmetic and policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.limits import ProgramNeeds, why_not
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.model.layer_ops import PagedAttention

Variant = Literal["software", "gpu"]
VARIANTS: tuple[Variant, ...] = ("software", "gpu")

MAX_HEAD_SIZE = 256
DECODE_WORKGROUP = 256
SHARES = 16
"""Threads that share a maximum or a total in the decode programs."""
PREFILL_ROWS = 64
PREFERRED_WORKGROUP_BYTES = 16384


@dataclass(frozen=True, slots=True)
class AttentionBucket:
    """Upper bounds of the steps that one recording serves."""

    max_tokens: int
    max_sequences: int
    max_query_len: int
    """New tokens of one sequence; 1 for a recording of decodes only."""
    max_kv_len: int
    """Keys of one sequence, its new tokens included."""


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """The variant to run, and for the other why it is not run."""

    variant: Variant
    reasons: dict[Variant, str]


def why_not_attention(op: PagedAttention) -> str | None:
    """The reason why no program here computes `op`, or None."""
    if op.head_size % 8 or not 8 <= op.head_size <= MAX_HEAD_SIZE:
        return f"head size {op.head_size}; it must be a multiple of 8 from 8 to {MAX_HEAD_SIZE}"
    if op.rope is not None and (op.rope.dim % 8 or not 8 <= op.rope.dim <= op.head_size):
        return f"rotary over {op.rope.dim} channels; it must be a multiple of 8 up to the head size, {op.head_size}"
    if (op.q_norm is None) != (op.k_norm is None):
        return "a norm of only one of Q and K"
    return None


def check_attention(op: PagedAttention) -> None:
    """Raise `InvalidArgument` for a description that contradicts itself, `NotSupported` for what no program does."""
    if op.kv_num_heads < 1 or op.num_heads < 1 or op.num_heads % op.kv_num_heads:
        raise InvalidArgument(
            f"layer {op.layer} has {op.num_heads} query heads over {op.kv_num_heads} KV heads; "
            "the first must be a positive multiple of the second",
            param="num_heads",
        )
    if op.local_window_size != -1 and op.local_window_size < 1:
        raise InvalidArgument(
            f"layer {op.layer} has a window of {op.local_window_size} keys; it must be positive, or -1 for none",
            param="local_window_size",
        )
    if op.softcap < 0:
        raise InvalidArgument(
            f"layer {op.layer} has a softcap of {op.softcap}; it must be positive, or 0 for none", param="softcap"
        )
    if op.rope is not None and len(op.rope.inverse_frequencies) != op.rope.dim // 2:
        raise InvalidArgument(
            f"layer {op.layer} rotates {op.rope.dim} channels with {len(op.rope.inverse_frequencies)} frequencies; "
            "it takes one for each pair of channels",
            param="rope",
        )
    reason = why_not_attention(op)
    if reason is not None:
        raise NotSupported(f"attention of layer {op.layer} is not supported: {reason}")


def query_tile_tokens(op: PagedAttention) -> int:
    """Tokens of a query tile: enough to fill a prefill workgroup's rows with the query heads of one KV head."""
    group = op.num_heads // op.kv_num_heads
    return max(16, PREFILL_ROWS // group)


def software_heads_per_thread(op: PagedAttention) -> int:
    """Query heads of one KV head that share its rows in a thread of the software variant: at most 4."""
    return max(h for h in _divisors(op.num_heads // op.kv_num_heads) if h <= 4)


def decode_split(op: PagedAttention) -> int:
    """Keys of a decode workgroup: fewer of long rows, so that a thread has as much to load."""
    return 128 if op.head_size <= 128 else 64


def decode_splits(op: PagedAttention, max_kv_len: int) -> int:
    """Splits that cover every key a query may see, wherever its window starts."""
    split = decode_split(op)
    splits = -(-max_kv_len // split)
    if op.local_window_size > 0:
        splits = min(splits, -(-(op.local_window_size - 1) // split) + 1)
    return splits


def decode_heads_per_group(op: PagedAttention) -> int:
    """The most query heads of one KV head that share its rows within the preferred workgroup memory."""
    group = op.num_heads // op.kv_num_heads
    fitting = [h for h in _divisors(group) if decode_workgroup_bytes(op, h) <= PREFERRED_WORKGROUP_BYTES]
    return max(fitting, default=1)


def decode_workgroup_bytes(op: PagedAttention, heads_per_group: int) -> int:
    """Workgroup memory of the decode program."""
    split, columns = decode_split(op), op.head_size // 4
    stripes = DECODE_WORKGROUP // columns
    slots = 4 * stripes * -(-split // stripes)
    scores = 4 * DECODE_WORKGROUP * heads_per_group
    shares = 2 * 4 * SHARES * heads_per_group
    return 16 * heads_per_group * columns + slots + scores + 16 * stripes * columns + shares


def reduce_workgroup_bytes(op: PagedAttention, splits: int) -> int:
    """Workgroup memory of the program that joins the splits."""
    columns = op.head_size // 4
    return 2 * 4 * splits + 4 * SHARES + 16 * (DECODE_WORKGROUP // columns) * columns


def prefill_heads_per_group(op: PagedAttention, tile_tokens: int) -> int:
    """The most query heads of one KV head whose rows fit a prefill workgroup."""
    group = op.num_heads // op.kv_num_heads
    return max((h for h in _divisors(group) if h * tile_tokens <= PREFILL_ROWS), default=1)


def prefill_keys(op: PagedAttention) -> int:
    """Keys of a tile in workgroup memory."""
    return 32 if op.head_size <= 64 else 16


def prefill_threads(rows: int) -> int:
    """Threads of a prefill workgroup: 8 for every 4 query rows."""
    return -(-rows // 4) * 8


def prefill_workgroup_bytes(op: PagedAttention, rows: int) -> int:
    keys, blocks = prefill_keys(op), -(-rows // 4)
    staged = 8 * keys * (op.head_size // 4 + 1)
    weights = 4 * blocks * 4 * (keys + 1)
    return 4 * keys + staged + weights + 4 * blocks * 32


def partials_bytes(op: PagedAttention, bucket: AttentionBucket) -> int:
    """Bytes of scratch memory between the two decode programs; 0 where one split serves all."""
    splits = decode_splits(op, bucket.max_kv_len)
    return 0 if splits == 1 else 4 * bucket.max_sequences * op.num_heads * splits * (op.head_size + 4)


def gpu_needs(op: PagedAttention, bucket: AttentionBucket, tile_tokens: int) -> list[ProgramNeeds]:
    """What the programs of the gpu variant take from the device."""
    splits = decode_splits(op, bucket.max_kv_len)
    needs = [
        ProgramNeeds(
            workgroup_size=(DECODE_WORKGROUP, 1, 1),
            workgroup_bytes=max(
                decode_workgroup_bytes(op, decode_heads_per_group(op)), reduce_workgroup_bytes(op, splits)
            ),
            binding_bytes=(0, 0, 0, partials_bytes(op, bucket), 0),
            grid=(op.num_heads, splits, bucket.max_sequences),
        )
    ]
    if bucket.max_query_len > 1:
        rows = tile_tokens * prefill_heads_per_group(op, tile_tokens)
        needs.append(
            ProgramNeeds(
                workgroup_size=(prefill_threads(rows), 1, 1),
                workgroup_bytes=prefill_workgroup_bytes(op, rows),
                binding_bytes=(0,) * 5,
                grid=(op.num_heads, bucket.max_tokens, 1),
            )
        )
    return needs


def choose_attention(info: DeviceInfo, op: PagedAttention, bucket: AttentionBucket) -> AttentionChoice:
    """The variant for this device and recording. Raises as `check_attention` does."""
    check_attention(op)
    unmet = [why_not(needs, info) for needs in gpu_needs(op, bucket, query_tile_tokens(op))]
    reason = next((one for one in unmet if one is not None), None)
    if reason is not None:
        return AttentionChoice("software", {"gpu": reason})
    if info.adapter_class == "software":
        return AttentionChoice("software", {"gpu": "the adapter computes on a CPU, where workgroup barriers are slow"})
    return AttentionChoice("gpu", {"software": "a thread for each query head would leave most of a GPU idle"})


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]

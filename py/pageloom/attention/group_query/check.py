"""Which inputs a GroupQueryAttention may be given, and the rules on what its integer inputs hold on the host.

Where lengths are known to the device only, they are clamped: seqlens_k + 1 is taken into [0, total_sequence_length], a
past below 0 counts as 0, and query_seqlens is taken into [0, min(sequence_length, total)].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pageloom.attention.cache_storage import CacheStorage, Element, check_scale, check_storage
from pageloom.attention.group_query.spec import SIDES, GroupQueryAttentionSpec
from pageloom.attention.tensors import DType, TensorInfo
from pageloom.attention.validation import Inputs, require, require_dtype, require_int, require_rank, require_tensor

INPUT_NAMES = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache",
    "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight",
    "query_seqlens",
)  # fmt: skip


class KvMode(Enum):
    """Where the new K and V come from."""

    SEPARATE = "query, key and value are three tensors"
    PACKED = "query holds the heads of Q, then of K, then of V"
    SHARED = "key and value are empty, and past_key and past_value hold all of the sequence"


@dataclass(frozen=True, slots=True)
class GroupQueryAttentionShape:
    """What the shapes say, once they are found to agree.

    `past_length` is the sequence dimension of past_key (0 without it), `present_length` that of present_key,
    `total_sequence_length` the largest number of tokens of a sequence after this step, or a bound of it.
    """

    mode: KvMode
    dtype: DType
    batch_size: int
    sequence_length: int
    head_size: int
    past_length: int
    present_length: int
    total_sequence_length: int
    rotary_dim: int
    key_storage: CacheStorage
    value_storage: CacheStorage
    has_query_seqlens: bool

    @property
    def first_prompt(self) -> bool:
        """Whether no sequence has a past."""
        return not self.has_query_seqlens and self.sequence_length == self.total_sequence_length


def check_shapes(
    spec: GroupQueryAttentionSpec, given: dict[str, TensorInfo], total_sequence_length: int
) -> GroupQueryAttentionShape:
    """The resolved shape of a call with the inputs `given`, by ONNX input name.

    `total_sequence_length` is the value of that input, which lives in host memory. Raises `InvalidArgument` naming the
    input.
    """
    inputs = Inputs(given, INPUT_NAMES)
    query = inputs.need("query")
    require_dtype("query", query, "float32", "float16", "bfloat16")
    require_rank("query", query, 3)
    require_int("total_sequence_length", total_sequence_length, 1)
    mode, head_size = _mode(spec, inputs, query)
    batch_size, sequence_length = query.shape[:2]
    require_tensor("seqlens_k", inputs.need("seqlens_k"), "int32", (batch_size,))
    has_query_seqlens = inputs.has("query_seqlens")
    require(
        total_sequence_length >= sequence_length or bool(spec.sliding_window_cache),
        f"total_sequence_length is {total_sequence_length}; at least the {sequence_length} rows of query are expected",
        "total_sequence_length",
    )
    require(
        has_query_seqlens or batch_size == 1 or sequence_length in (1, total_sequence_length) or mode is KvMode.SHARED,
        f"query has {sequence_length} rows after a past in a batch of {batch_size}; give query_seqlens",
        "query",
    )
    key_storage, value_storage, past_length = _past(spec, inputs, query, head_size)
    _check_past(spec, inputs, mode, past_length, sequence_length, total_sequence_length)
    if has_query_seqlens:
        require_tensor("query_seqlens", inputs.need("query_seqlens"), "int32", (batch_size,))
        require(bool(spec.causal), "query_seqlens was given with causal 0; it needs causal 1", "query_seqlens")
    rotary_dim = _rotary(spec, inputs, query.dtype, head_size, total_sequence_length)
    if (positions := inputs.get("position_ids")) is not None:
        require_tensor("position_ids", positions, "int64", (batch_size, sequence_length))
    _optional(spec, inputs, query, head_size, total_sequence_length)
    return GroupQueryAttentionShape(
        mode=mode,
        dtype=query.dtype,
        batch_size=batch_size,
        sequence_length=sequence_length,
        head_size=head_size,
        past_length=past_length,
        present_length=past_length if spec.sliding_window_cache else max(total_sequence_length, past_length),
        total_sequence_length=total_sequence_length,
        rotary_dim=rotary_dim,
        key_storage=key_storage,
        value_storage=value_storage,
        has_query_seqlens=has_query_seqlens,
    )


def _mode(spec: GroupQueryAttentionSpec, inputs: Inputs, query: TensorInfo) -> tuple[KvMode, int]:
    packed = not inputs.need_both("key", "value")
    heads = spec.num_heads + (2 * spec.kv_num_heads if packed else 0)
    batch_size, sequence_length, hidden = query.shape
    require(
        batch_size > 0 and sequence_length > 0 and hidden > 0 and hidden % heads == 0,
        f"query has shape {query.shape}; (batch, rows, channels), channels a multiple of {heads} heads, is expected",
        "query",
    )
    head_size = hidden // heads
    require(head_size % 8 == 0, f"query gives a head size of {head_size}; a multiple of 8 is expected", "query")
    if packed:
        return KvMode.PACKED, head_size
    key = inputs.need("key")
    require_rank("key", key, 3)
    shared = key.shape[1] == 0
    rows = 0 if shared else sequence_length
    for name in ("key", "value"):
        require_tensor(name, inputs.need(name), query.dtype, (batch_size, rows, spec.kv_num_heads * head_size))
    return (KvMode.SHARED if shared else KvMode.SEPARATE), head_size


def _past(
    spec: GroupQueryAttentionSpec, inputs: Inputs, query: TensorInfo, head_size: int
) -> tuple[CacheStorage, CacheStorage, int]:
    """Storage of K and of V, and the sequence dimension of the past."""
    has_past = inputs.need_both("past_key", "past_value")
    storages = []
    for side in SIDES:
        name = "past_key" if side == "k" else "past_value"
        past = inputs.get(name)
        element = _element(spec.bit_width(side), name, past, query.dtype)
        storage = check_storage(f"{side}_cache", element, spec.quant_type(side), query.dtype)
        check_scale(inputs, f"{side}_scale", storage, spec.kv_num_heads, head_size)
        storages.append(storage)
        if past is not None:
            require_rank(name, past, 4)
            expected = (query.shape[0], spec.kv_num_heads, past.shape[2], storage.row_width(head_size))
            require_tensor(name, past, storage.tensor_dtype, expected)
    past_length = inputs.need("past_key").shape[2] if has_past else 0
    if has_past:
        require(
            inputs.need("past_value").shape[2] == past_length,
            f"past_value has {inputs.need('past_value').shape[2]} rows and past_key {past_length}; they must agree",
            "past_value",
        )
    return storages[0], storages[1], past_length


def _element(bit_width: int, name: str, past: TensorInfo | None, dtype: DType) -> Element:
    if bit_width == 4:
        return "int4"
    if bit_width == 8:
        if past is not None:
            require_dtype(name, past, "int8", "float8e4m3fn")
        return "float8e4m3fn" if past is not None and past.dtype == "float8e4m3fn" else "int8"
    element: Element = dtype  # type: ignore[assignment]  # narrowed by the check of query
    return element


def _check_past(
    spec: GroupQueryAttentionSpec, inputs: Inputs, mode: KvMode, past_length: int, rows: int, total: int
) -> None:
    if spec.sliding_window_cache:
        inputs.need("past_key", "a sliding window cache is as long as its past")
        require(
            past_length >= spec.local_window_size,
            f"past_key has {past_length} rows; at least local_window_size {spec.local_window_size} is expected",
            "past_key",
        )
    elif mode is KvMode.SHARED:
        inputs.need("past_key", "key and value are empty, so the past holds the sequence")
        require(
            total <= past_length,
            f"past_key has {past_length} rows for {total} tokens; it must hold them all",
            "past_key",
        )
    elif inputs.has("query_seqlens"):
        inputs.need("past_key", "query_seqlens needs a cache to append to")
    elif rows != total:
        inputs.need("past_key", f"{total} tokens with {rows} new ones need the past of the others")


def _rotary(spec: GroupQueryAttentionSpec, inputs: Inputs, dtype: DType, head_size: int, total: int) -> int:
    given = inputs.need_both("cos_cache", "sin_cache")
    if not spec.do_rotary:
        inputs.forbid("cos_cache", "do_rotary is 0, so nothing would read it")
        return 0
    require(given, "do_rotary is 1 without cos_cache and sin_cache; give both", "cos_cache")
    cos = inputs.need("cos_cache")
    require_dtype("cos_cache", cos, dtype)
    require_rank("cos_cache", cos, 2)
    rows, half = cos.shape
    require(
        half > 0 and half % 8 == 0 and half <= head_size // 2,
        f"cos_cache has {half} columns; a multiple of 8 up to half the head size, {head_size // 2}, is expected",
        "cos_cache",
    )
    require(
        rows >= total or inputs.has("query_seqlens"),
        f"cos_cache has {rows} rows; at least total_sequence_length {total} is expected",
        "cos_cache",
    )
    require_tensor("sin_cache", inputs.need("sin_cache"), dtype, cos.shape)
    return 2 * half


def _optional(spec: GroupQueryAttentionSpec, inputs: Inputs, query: TensorInfo, head_size: int, total: int) -> None:
    batch_size, rows = query.shape[:2]
    if (sink := inputs.get("head_sink")) is not None:
        require_tensor("head_sink", sink, query.dtype, (spec.num_heads,))
    inputs.need_both("q_norm_weight", "k_norm_weight")
    for name in ("q_norm_weight", "k_norm_weight"):
        if (weight := inputs.get(name)) is not None:
            require_tensor(name, weight, query.dtype, (head_size,))
    if (bias := inputs.get("attention_bias")) is not None:
        require_dtype("attention_bias", bias, query.dtype)
        require_rank("attention_bias", bias, 4)
        require(
            bias.shape[0] in (1, batch_size)
            and bias.shape[1] in (1, spec.num_heads)
            and bias.shape[2] == rows
            and bias.shape[3] >= total,
            f"attention_bias has shape {bias.shape}; (1 or {batch_size}, 1 or {spec.num_heads}, {rows}, "
            f"at least {total}) is expected",
            "attention_bias",
        )


def check_lengths(
    spec: GroupQueryAttentionSpec,
    shape: GroupQueryAttentionShape,
    seqlens_k: Sequence[int],
    query_seqlens: Sequence[int] | None = None,
) -> None:
    """Raise `InvalidArgument` for lengths, known to the host, that the cache or the query cannot hold.

    `seqlens_k[b]` is one less than the tokens of sequence b after this step; `query_seqlens[b]` counts its valid rows.
    """
    for sequence, last in enumerate(seqlens_k):
        total = last + 1
        require(
            1 <= total <= shape.total_sequence_length,
            f"seqlens_k of sequence {sequence} is {last}; 0 to {shape.total_sequence_length - 1} is allowed",
            "seqlens_k",
        )
        if query_seqlens is None:
            new = 0 if shape.mode is KvMode.SHARED else shape.sequence_length
            require(
                shape.first_prompt or total >= shape.sequence_length,
                f"seqlens_k of sequence {sequence} is {last} with {shape.sequence_length} new tokens; "
                f"at least {shape.sequence_length - 1} is expected",
                "seqlens_k",
            )
            past = 0 if shape.first_prompt else total - new
        else:
            new = query_seqlens[sequence]
            require(
                0 <= new <= min(shape.sequence_length, total),
                f"query_seqlens of sequence {sequence} is {new}; 0 to {min(shape.sequence_length, total)} is allowed",
                "query_seqlens",
            )
            past = total - new
        if not spec.sliding_window_cache:
            require(
                past <= shape.past_length,
                f"sequence {sequence} has {past} cached tokens; past_key has {shape.past_length} rows",
                "past_key",
            )
            require(
                query_seqlens is None or past + shape.sequence_length <= shape.present_length,
                f"sequence {sequence} appends a chunk of {shape.sequence_length} rows after {past} tokens; "
                f"the cache holds {shape.present_length}",
                "past_key",
            )

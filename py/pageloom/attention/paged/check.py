"""Which inputs a PagedAttention may be given, by their types and shapes alone.

What an integer tensor holds is checked in `host_values` where the host knows the values. Where the device alone knows
them, they are no error but mean something on every backend:

- a block id outside [0, num_blocks) is an unmapped page, and its positions are masked;
- a slot outside [0, num_blocks * block_size) stores nothing; where two tokens are given one slot, either may remain;
- a sequence whose past length is negative, or that would pass its position limit, stores nothing and its rows are 0;
- tokens at or past cumulative_sequence_length[-1] belong to no sequence: they store nothing and their rows are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pageloom.attention.cache_storage import CacheStorage, check_cache_dtype, check_scale, check_storage
from pageloom.attention.paged.spec import ROTARY_ALIGNMENT, PagedAttentionSpec
from pageloom.attention.tensors import DType, TensorInfo
from pageloom.attention.validation import Inputs, require, require_dtype, require_rank, require_tensor

INPUT_NAMES = (
    "query", "key", "value", "key_cache", "value_cache", "cumulative_sequence_length", "past_seqlens", "block_table",
    "cos_cache", "sin_cache", "slot_mapping", "head_sink", "q_norm_weight", "k_norm_weight", "k_scale", "v_scale",
    "attention_metadata",
)  # fmt: skip

MIN_BLOCK_SIZE = 16
HEAD_SIZE_ALIGNMENT = 8


class QkvMode(Enum):
    """Where Q, K and V come from."""

    SEPARATE = "query, key and value are three tensors"
    PACKED = "query holds the heads of Q, then of K, then of V"
    LATENT = "key is the row of the latent cache, and V its first channels"


@dataclass(frozen=True, slots=True)
class PagedAttentionShape:
    """What the shapes say, once they are found to agree.

    `rotary_dim` is 0 without rotary. `position_limit` is one past the last position that a token may take: the table's
    capacity, and no more than the rows of cos_cache.
    """

    mode: QkvMode
    dtype: DType
    num_tokens: int
    batch_size: int
    head_size: int
    v_head_size: int
    num_blocks: int
    block_size: int
    max_blocks_per_sequence: int
    rotary_dim: int
    position_limit: int
    key_storage: CacheStorage
    value_storage: CacheStorage
    has_head_sink: bool
    has_qk_norm: bool
    has_slot_mapping: bool

    @property
    def capacity(self) -> int:
        """Positions that a row of the block table can map."""
        return self.max_blocks_per_sequence * self.block_size

    @property
    def num_slots(self) -> int:
        """Rows of the cache."""
        return self.num_blocks * self.block_size


def check_shapes(spec: PagedAttentionSpec, given: dict[str, TensorInfo]) -> PagedAttentionShape:
    """The resolved shape of a call with the inputs `given`, by ONNX input name.

    Raises `InvalidArgument` naming the input. The layout is looked at before the presence of key and value, for the
    same presence means another thing in each layout.
    """
    inputs = Inputs(given, INPUT_NAMES)
    query = inputs.need("query")
    require_dtype("query", query, "float16", "bfloat16", "float32")
    require_rank("query", query, 2)
    mode = _mode(spec, inputs)
    head_size = _head_size(spec, mode, inputs, query)
    v_head_size = _v_head_size(spec, head_size)
    key_storage, value_storage = _caches(spec, inputs, query.dtype, head_size)
    num_blocks, block_size = inputs.need("key_cache").shape[:2]
    batch_size, max_blocks = _sequences(inputs)
    num_tokens = query.shape[0]
    for name in ("q_norm_weight", "k_norm_weight", "head_sink"):
        if spec.latent:
            inputs.forbid(name, "a LATENT cache takes no norm weights and no sink")
    if spec.use_smooth_softmax:
        inputs.forbid("head_sink", "use_smooth_softmax is a sink of 0 in every head; say 0 to give other sinks")
    has_qk_norm = inputs.need_both("q_norm_weight", "k_norm_weight")
    optional: dict[str, tuple[DType, tuple[int, ...]]] = {
        "slot_mapping": ("int32", (num_tokens,)),
        "head_sink": (query.dtype, (spec.num_heads,)),
        "q_norm_weight": (query.dtype, (head_size,)),
        "k_norm_weight": (query.dtype, (head_size,)),
    }
    for name, (dtype, shape) in optional.items():
        if (tensor := inputs.get(name)) is not None:
            require_tensor(name, tensor, dtype, shape)
    rotary_dim, rotary_rows = _rotary(spec, inputs, query.dtype, head_size)
    if (metadata := inputs.get("attention_metadata")) is not None:
        require_dtype("attention_metadata", metadata, "int32")
        require(
            metadata.shape in ((2,), (3,)),
            f"attention_metadata has shape {metadata.shape}; (2,) or (3,) is expected",
            "attention_metadata",
        )
    capacity = max_blocks * block_size
    return PagedAttentionShape(
        mode=mode,
        dtype=query.dtype,
        num_tokens=num_tokens,
        batch_size=batch_size,
        head_size=head_size,
        v_head_size=v_head_size,
        num_blocks=num_blocks,
        block_size=block_size,
        max_blocks_per_sequence=max_blocks,
        rotary_dim=rotary_dim,
        position_limit=min(capacity, rotary_rows) if rotary_dim else capacity,
        key_storage=key_storage,
        value_storage=value_storage,
        has_head_sink=inputs.has("head_sink"),
        has_qk_norm=has_qk_norm,
        has_slot_mapping=inputs.has("slot_mapping"),
    )


def _mode(spec: PagedAttentionSpec, inputs: Inputs) -> QkvMode:
    if spec.latent:
        inputs.need("key", "a LATENT cache stores the rows of key")
        inputs.forbid("value", "in a LATENT cache V is the first channels of key")
        inputs.forbid("value_cache", "a LATENT cache is one cache, key_cache")
        return QkvMode.LATENT
    separate = inputs.need_both("key", "value")
    inputs.need("value_cache", "only a LATENT cache does without")
    return QkvMode.SEPARATE if separate else QkvMode.PACKED


def _head_size(spec: PagedAttentionSpec, mode: QkvMode, inputs: Inputs, query: TensorInfo) -> int:
    packed = mode is QkvMode.PACKED
    heads = spec.num_heads + (2 * spec.kv_num_heads if packed else 0)
    num_tokens, hidden = query.shape
    require(
        hidden % heads == 0 and hidden > 0,
        f"query has {hidden} channels; a multiple of {heads} heads is expected"
        + (" (no key and value were given, so query is read as packed Q, K and V)" if packed else ""),
        "query",
    )
    head_size = hidden // heads
    require(
        head_size % HEAD_SIZE_ALIGNMENT == 0,
        f"query gives a head size of {head_size}; a multiple of {HEAD_SIZE_ALIGNMENT} is expected",
        "query",
    )
    for name in ("key", "value"):
        if (tensor := inputs.get(name)) is not None:
            require_tensor(name, tensor, query.dtype, (num_tokens, spec.kv_num_heads * head_size))
    return head_size


def _v_head_size(spec: PagedAttentionSpec, head_size: int) -> int:
    v_head_size = spec.v_head_size or head_size
    require(
        v_head_size <= head_size,
        f"v_head_size is {v_head_size}; at most head_size {head_size} is allowed",
        "v_head_size",
    )
    if v_head_size != head_size:
        require(
            spec.latent,
            f"v_head_size is {v_head_size} with head_size {head_size}; they differ only with kv_cache_layout 'LATENT'",
            "v_head_size",
        )
        require(
            bool(spec.scale),
            f"scale is unset with v_head_size {v_head_size} and head_size {head_size}; 1 / sqrt(head_size) is not the "
            "width before absorption, so give the scale",
            "scale",
        )
    return v_head_size


def _caches(
    spec: PagedAttentionSpec, inputs: Inputs, dtype: DType, head_size: int
) -> tuple[CacheStorage, CacheStorage]:
    key_cache = inputs.need("key_cache")
    key_storage = _cache(spec, inputs, key_cache, "key_cache", dtype, head_size)
    block_size = key_cache.shape[1]
    require(
        block_size >= MIN_BLOCK_SIZE and block_size & (block_size - 1) == 0,
        f"key_cache has blocks of {block_size} positions; a power of two of at least {MIN_BLOCK_SIZE} is expected",
        "key_cache",
    )
    if spec.latent:
        inputs.forbid("v_scale", "in a LATENT cache V is dequantised with k_scale")
        return key_storage, key_storage
    value_cache = inputs.need("value_cache")
    value_storage = _cache(spec, inputs, value_cache, "value_cache", dtype, head_size)
    require(
        value_cache.shape[:3] == key_cache.shape[:3],
        f"value_cache has shape {value_cache.shape} and key_cache {key_cache.shape}; blocks and heads must agree",
        "value_cache",
    )
    return key_storage, value_storage


def _cache(
    spec: PagedAttentionSpec, inputs: Inputs, cache: TensorInfo, param: str, dtype: DType, head_size: int
) -> CacheStorage:
    side = param[0]
    quant_type = spec.k_quant_type if side == "k" else spec.v_quant_type
    cache_dtype = spec.k_cache_dtype if side == "k" else spec.v_cache_dtype
    element = check_cache_dtype(f"{side}_cache_dtype", cache_dtype, cache, param)
    storage = check_storage(param, element, quant_type, dtype)
    require_rank(param, cache, 4)
    row = (spec.kv_num_heads, storage.row_width(head_size))
    require(
        cache.shape[2:] == row,
        f"{param} has shape {cache.shape}; (num_blocks, block_size, {row[0]}, {row[1]}) is expected for {element}",
        param,
    )
    check_scale(inputs, f"{side}_scale", storage, spec.kv_num_heads, head_size)
    return storage


def _sequences(inputs: Inputs) -> tuple[int, int]:
    cumulative = inputs.need("cumulative_sequence_length")
    require_dtype("cumulative_sequence_length", cumulative, "int32")
    require(
        len(cumulative.shape) == 1 and cumulative.shape[0] >= 2,
        f"cumulative_sequence_length has shape {cumulative.shape}; (batch + 1,) with batch >= 1 is expected",
        "cumulative_sequence_length",
    )
    batch_size = cumulative.shape[0] - 1
    require_tensor("past_seqlens", inputs.need("past_seqlens"), "int32", (batch_size,))
    table = inputs.need("block_table")
    require_dtype("block_table", table, "int32")
    require(
        len(table.shape) == 2 and table.shape[0] == batch_size and table.shape[1] >= 1,
        f"block_table has shape {table.shape}; ({batch_size}, max_blocks_per_sequence >= 1) is expected",
        "block_table",
    )
    return batch_size, table.shape[1]


def _rotary(spec: PagedAttentionSpec, inputs: Inputs, dtype: DType, head_size: int) -> tuple[int, int]:
    """(rotary_dim, rows of the cos cache), both 0 without rotary."""
    given = inputs.need_both("cos_cache", "sin_cache")
    if not spec.do_rotary:
        inputs.forbid("cos_cache", "do_rotary is 0, so nothing would read it")
        return 0, 0
    require(given, "do_rotary is 1 without cos_cache and sin_cache; give both", "cos_cache")
    cos = inputs.need("cos_cache")
    require_dtype("cos_cache", cos, dtype)
    require_rank("cos_cache", cos, 2)
    rows, half = cos.shape
    require(
        half > 0 and half % ROTARY_ALIGNMENT == 0 and half <= head_size // 2,
        f"cos_cache has {half} columns; a multiple of {ROTARY_ALIGNMENT} up to half the head size, {head_size // 2}, "
        "is expected",
        "cos_cache",
    )
    require_tensor("sin_cache", inputs.need("sin_cache"), dtype, cos.shape)
    require(
        spec.rotary_offset + 2 * half <= head_size,
        f"rotary_offset {spec.rotary_offset} and {2 * half} rotated channels pass the head size of {head_size}",
        "rotary_offset",
    )
    return 2 * half, rows

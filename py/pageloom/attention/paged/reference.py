"""PagedAttention in numpy float64, written from the operator's contract alone: the oracle of every backend.

Nothing between the inputs and the outputs is rounded but what is stored: new K and V are rounded to the cache's element
(or quantised, in float32) as they are written, and attention reads them back from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pageloom.attention.cache_storage import CacheStorage
from pageloom.attention.kv_quantization import load, spread_scale, store
from pageloom.attention.numerics.dtypes import Array, Bool, Float64, describe_all, to_float64
from pageloom.attention.numerics.embedding import rms_norm, rotate
from pageloom.attention.numerics.softmax import Attended, attend, head_groups, refuse_nan
from pageloom.attention.paged.check import PagedAttentionShape, QkvMode, check_shapes
from pageloom.attention.paged.host_values import check_metadata
from pageloom.attention.paged.spec import PagedAttentionSpec


@dataclass(frozen=True, slots=True)
class PagedAttentionResult:
    """What the operator gives, and what an error budget needs.

    - `output` `[num_tokens, num_heads, v_head_size]`, `log_sum_exp` `[num_tokens, num_heads]`: not rounded;
    - `key_cache`, `value_cache`: new arrays, of the inputs' types (value_cache None in LATENT);
    - `written` `[num_blocks, block_size]`: the slots that were stored to;
    - `mass`, `logit_mass`, `logit_size` `[num_tokens, num_heads]`: see `Attended`; `num_keys`: keys seen.
    """

    output: Float64
    log_sum_exp: Float64
    key_cache: Array
    value_cache: Array | None
    written: Bool
    mass: Float64
    logit_mass: Float64
    logit_size: Float64
    num_keys: Float64


@dataclass(frozen=True, slots=True)
class Sequence:
    """One valid sequence: its row of the block table, its new tokens' rows, and the length cached before them."""

    row: int
    tokens: slice
    past: int

    @property
    def total(self) -> int:
        """Cached and new tokens."""
        new: int = self.tokens.stop - self.tokens.start
        return self.past + new

    @property
    def positions(self) -> Array:
        """Absolute position of each new token."""
        return np.arange(self.past, self.total)


def paged_attention(
    spec: PagedAttentionSpec, inputs: Mapping[str, Array], *, allow_nan: bool = False
) -> PagedAttentionResult:
    """Run the operator on `inputs`, named as ONNX names them; lengths, tables and slots are taken as device values.

    Raises `InvalidArgument` where `check_shapes` does, FloatingPointError for a NaN in the result
    unless `allow_nan`.
    """
    shape = check_shapes(spec, describe_all(dict(inputs)))
    if "attention_metadata" in inputs:
        check_metadata(shape, inputs["attention_metadata"].tolist())
    sequences = list(valid_sequences(shape, inputs))
    query, key, value = prepared_qkv(spec, shape, inputs, sequences)
    slots = token_slots(shape, inputs, sequences)
    key_cache, value_cache = write_caches(shape, inputs, key, value, slots)
    written = np.zeros(shape.num_slots, np.bool_)
    written[slots[slots >= 0]] = True
    result = PagedAttentionResult(
        output=np.zeros((shape.num_tokens, spec.num_heads, shape.v_head_size)),
        log_sum_exp=np.full((shape.num_tokens, spec.num_heads), -np.inf),
        key_cache=key_cache,
        value_cache=value_cache,
        written=written.reshape(shape.num_blocks, shape.block_size),
        **{
            name: np.zeros((shape.num_tokens, spec.num_heads))
            for name in ("mass", "logit_mass", "logit_size", "num_keys")
        },
    )
    for sequence in sequences:
        _attend_sequence(spec, shape, inputs, sequence, query[sequence.tokens], result)
    if not allow_nan:
        refuse_nan("output", result.output)
    return result


def valid_sequences(shape: PagedAttentionShape, inputs: Mapping[str, Array]) -> Iterator[Sequence]:
    """The sequences that take part: those with new tokens, a past of at least 0, and room for all of them."""
    bounds = inputs["cumulative_sequence_length"].tolist()
    for row, past in enumerate(inputs["past_seqlens"].tolist()):
        sequence = Sequence(row, slice(bounds[row], bounds[row + 1]), past)
        if bounds[row] < bounds[row + 1] and past >= 0 and sequence.total <= shape.position_limit:
            yield sequence


def prepared_qkv(
    spec: PagedAttentionSpec, shape: PagedAttentionShape, inputs: Mapping[str, Array], sequences: list[Sequence]
) -> tuple[Float64, Float64, Float64]:
    """Q, K and V `[num_tokens, heads, head_size]` after norm and rotary; V as wide as K in LATENT, and unused."""
    num_heads = inputs["query"].shape[1] // shape.head_size
    heads = to_float64(inputs["query"]).reshape(shape.num_tokens, num_heads, shape.head_size)
    query = heads[:, : spec.num_heads]
    if shape.mode is QkvMode.PACKED:
        key, value = np.split(heads[:, spec.num_heads :], 2, axis=1)
    else:
        key = to_float64(inputs["key"]).reshape(shape.num_tokens, spec.kv_num_heads, shape.head_size)
        value = key if spec.latent else to_float64(inputs["value"]).reshape(key.shape)
    if shape.has_qk_norm:
        query = rms_norm(query, inputs["q_norm_weight"], spec.qk_norm_epsilon)
        key = rms_norm(key, inputs["k_norm_weight"], spec.qk_norm_epsilon)
    if spec.do_rotary:
        positions = np.zeros(shape.num_tokens, np.int64)
        for sequence in sequences:
            positions[sequence.tokens] = sequence.positions
        caches = inputs["cos_cache"], inputs["sin_cache"]
        interleaved, offset = bool(spec.rotary_interleaved), spec.rotary_offset
        query = rotate(query, positions, *caches, interleaved=interleaved, offset=offset)
        key = rotate(key, positions, *caches, interleaved=interleaved, offset=offset)
    return query, key, value


def token_slots(shape: PagedAttentionShape, inputs: Mapping[str, Array], sequences: list[Sequence]) -> Array:
    """int64[num_tokens]: the flat slot where the K and V of each token go, -1 for none.

    `slot_mapping` decides alone where it is given, but for the tokens of sequences that take no part.
    """
    slots = np.full(shape.num_tokens, -1, np.int64)
    for sequence in sequences:
        if shape.has_slot_mapping:
            slots[sequence.tokens] = inputs["slot_mapping"][sequence.tokens]
        else:
            slots[sequence.tokens] = _slots_of_positions(shape, inputs, sequence, sequence.positions)
    return np.where((slots >= 0) & (slots < shape.num_slots), slots, -1)


def _slots_of_positions(
    shape: PagedAttentionShape, inputs: Mapping[str, Array], sequence: Sequence, positions: Array
) -> Array:
    blocks = inputs["block_table"][sequence.row].astype(np.int64)[positions // shape.block_size]
    mapped = (blocks >= 0) & (blocks < shape.num_blocks)
    return np.where(mapped, blocks * shape.block_size + positions % shape.block_size, -1)


def _scale(shape: PagedAttentionShape, inputs: Mapping[str, Array], side: str, storage: CacheStorage) -> Array | None:
    if not storage.quantized:
        return None
    kv_num_heads = inputs["key_cache"].shape[2]
    return spread_scale(inputs[f"{side}_scale"], storage, kv_num_heads, shape.head_size)


def write_caches(
    shape: PagedAttentionShape, inputs: Mapping[str, Array], key: Float64, value: Float64, slots: Array
) -> tuple[Array, Array | None]:
    """Copies of the caches with the K and V of each token in its slot."""

    def written(name: str, rows: Float64, storage: CacheStorage) -> Array:
        cache = inputs[name].copy()
        stored = store(rows, storage, _scale(shape, inputs, name[0], storage), "divide")
        cache.reshape(shape.num_slots, *cache.shape[2:])[slots[slots >= 0]] = stored[slots >= 0]
        return cache

    key_cache = written("key_cache", key, shape.key_storage)
    if shape.mode is QkvMode.LATENT:
        return key_cache, None
    return key_cache, written("value_cache", value, shape.value_storage)


def visible_keys(spec: PagedAttentionSpec, sequence: Sequence) -> Bool:
    """bool `[new tokens, total]`: which positions each new token sees, were all of them mapped."""
    own, keys = sequence.positions[:, None], np.arange(sequence.total)[None, :]
    visible = (keys <= own) if spec.is_causal else np.ones((len(own), sequence.total), np.bool_)
    if spec.windowed:
        visible = visible & (keys > own - spec.local_window_size)
    return visible


def sink_logits(spec: PagedAttentionSpec, inputs: Mapping[str, Array]) -> Float64 | None:
    """float64[num_heads], or None where no sink joins the softmax."""
    if "head_sink" in inputs:
        return to_float64(inputs["head_sink"])
    return np.zeros(spec.num_heads) if spec.use_smooth_softmax else None


def cached_rows(
    shape: PagedAttentionShape, inputs: Mapping[str, Array], result: PagedAttentionResult, slots: Array
) -> tuple[Float64, Float64]:
    """K `[kv_num_heads, L, head_size]` and V `[kv_num_heads, L, v_head_size]` read from the written caches at `slots`
    [L]; what an unmapped slot (-1) gives is never to be used."""

    def read(name: str, cache: Array, storage: CacheStorage) -> Float64:
        rows = cache.reshape(shape.num_slots, *cache.shape[2:])[slots]
        return load(rows, storage, _scale(shape, inputs, name, storage), shape.head_size).swapaxes(0, 1)

    keys = read("k", result.key_cache, shape.key_storage)
    if result.value_cache is None:
        return keys, keys[..., : shape.v_head_size]
    return keys, read("v", result.value_cache, shape.value_storage)


def _attend_sequence(
    spec: PagedAttentionSpec,
    shape: PagedAttentionShape,
    inputs: Mapping[str, Array],
    sequence: Sequence,
    query: Float64,
    result: PagedAttentionResult,
) -> None:
    slots = _slots_of_positions(shape, inputs, sequence, np.arange(sequence.total))
    keys, values = cached_rows(shape, inputs, result, slots)
    visible = visible_keys(spec, sequence) & (slots >= 0)
    sinks = sink_logits(spec, inputs)
    attended = attend(
        head_groups(spec.kv_num_heads, query.swapaxes(0, 1)),
        keys[:, None],
        values[:, None],
        visible[None, None],
        scale=spec.logit_scale(shape.head_size),
        softcap=spec.softcap,
        sink=None if sinks is None else head_groups(spec.kv_num_heads, sinks[:, None]),
    )
    _put(attended, visible, sequence.tokens, result)


def _put(attended: Attended, visible: Bool, tokens: slice, result: PagedAttentionResult) -> None:
    for name in ("output", "log_sum_exp", "mass", "logit_mass", "logit_size"):
        rows: Float64 = getattr(attended, name)
        getattr(result, name)[tokens] = rows.reshape(-1, *rows.shape[2:]).swapaxes(0, 1)
    result.num_keys[tokens] = visible.sum(axis=-1)[:, None]

"""PagedAttention done wrong, once for each way in which implementations have been wrong.

A mutant changes the reference, through the names that its module uses, or what it is given. `among` narrows the cases
to those that need, or are named after, what the mutant spoils.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pageloom.attention.kv_quantization import pack_int4, unpack_int4
from pageloom.attention.numerics.softmax import attend
from pageloom.attention.paged import reference

Patches = dict[str, Any]


@dataclass(frozen=True)
class Mutant:
    """`edit(spec, inputs)` gives what the reference is called with; `patches` replace names of its module."""

    name: str
    edit: Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any]]] = lambda spec, inputs: (spec, inputs)
    patches: Callable[[], Patches] = dict
    among: str = ""

    def run(self, monkeypatch: pytest.MonkeyPatch, spec: Any, inputs: dict[str, Any]) -> reference.PagedAttentionResult:
        with monkeypatch.context() as patched:
            for name, value in self.patches().items():
                patched.setattr(reference, name, value)
            return reference.paged_attention(*self.edit(spec, {name: array.copy() for name, array in inputs.items()}))


def with_spec(**changes: Any) -> Callable[..., Any]:
    return lambda spec, inputs: (replace(spec, **changes), inputs)


def with_inputs(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
    return lambda spec, inputs: (spec, inputs | change(inputs))


def without(name: str) -> Callable[..., Any]:
    return lambda spec, inputs: (spec, {key: array for key, array in inputs.items() if key != name})


def wider_window(by: int) -> Callable[..., Any]:
    def edit(spec: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        window = spec.local_window_size + by if spec.windowed else -1
        return replace(spec, local_window_size=window or -1), inputs

    return edit


def visible_as(change: Callable[[Any, Any, Any], Any]) -> Callable[[], Patches]:
    honest = reference.visible_keys
    return lambda: {"visible_keys": lambda spec, sequence: change(spec, sequence, honest(spec, sequence))}


def top_left(spec: Any, sequence: Any, visible: Any) -> Any:
    rows, keys = np.arange(len(visible))[:, None], np.arange(visible.shape[1])
    return visible & (keys <= rows)


def padded_past(spec: Any, sequence: Any, visible: Any) -> Any:
    """The causal rule with one key too many, as where the past is taken from a padded batch."""
    own, keys = sequence.positions[:, None], np.arange(visible.shape[1])
    return visible | (keys == own + 1)


def attend_as(change: Callable[..., Any]) -> Callable[[], Patches]:
    return lambda: {"attend": change}


def sink_for_each_tile(query: Any, keys: Any, values: Any, visible: Any, **options: Any) -> Any:
    if options.get("sink") is not None:
        options["sink"] = options["sink"] + np.log(np.ceil(keys.shape[-2] / 32))
    return attend(query, keys, values, visible, **options)


def halves_of_tiles_skipped(query: Any, keys: Any, values: Any, visible: Any, **options: Any) -> Any:
    return attend(query, keys, values, visible & (np.arange(keys.shape[-2]) % 32 < 16), **options)


def low_logits_masked(query: Any, keys: Any, values: Any, visible: Any, **options: Any) -> Any:
    logits = options["scale"] * (query @ np.nan_to_num(keys).swapaxes(-1, -2))
    return attend(query, keys, values, visible & (logits > -5e4), **options)


def mean_of_nothing(query: Any, keys: Any, values: Any, visible: Any, **options: Any) -> Any:
    none = ~visible.any(axis=-1, keepdims=True)
    return attend(query, keys, values, visible | none, **options)


def half_precision_products(query: Any, keys: Any, values: Any, visible: Any, **options: Any) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        overflown = np.isinf((query @ np.nan_to_num(keys).swapaxes(-1, -2)).astype(np.float16))
    result = attend(query, keys, values, visible, **options)
    result.output[(overflown & visible).any(axis=-1)] = np.nan
    return result


def interleaved_groups(kv_num_heads: int, array: Any) -> Any:
    """Query head h given K/V head h % kv_num_heads; the output comes back in the order it was asked in."""
    return array.reshape(-1, kv_num_heads, *array.shape[1:]).swapaxes(0, 1)


def cached(change: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[], Patches]:
    honest = reference.cached_rows
    return lambda: {"cached_rows": lambda *arguments: change(*honest(*arguments))}


def patched_slots(change: Callable[..., Any]) -> Callable[[], Patches]:
    honest = reference._slots_of_positions
    return lambda: {
        "_slots_of_positions": lambda shape, inputs, sequence, positions: change(
            shape, inputs, sequence, positions, honest(shape, inputs, sequence, positions)
        )
    }


def next_page_in_memory(shape: Any, inputs: Any, sequence: Any, positions: Any, slots: Any) -> Any:
    """Every second page of 16 positions taken for the one after the first in memory, as a tile of 32 keys would."""
    if shape.block_size != 16:
        return slots
    honest = {int(p): int(s) for p, s in zip(positions, slots, strict=True)}
    tiled = [honest.get(p - 16, s - 16) + 16 if p // 16 % 2 else s for p, s in honest.items()]
    return np.minimum(tiled, shape.num_slots - 1)


def unmapped_is_block_0(shape: Any, inputs: Any, sequence: Any, positions: Any, slots: Any) -> Any:
    return np.where(slots < 0, positions % shape.block_size, slots)


def sequential_blocks(inputs: dict[str, Any]) -> dict[str, Any]:
    table = inputs["block_table"]
    return {"block_table": np.arange(table.size, dtype=np.int32).reshape(table.shape) % len(inputs["key_cache"])}


def first_length_for_all(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"past_seqlens": np.full_like(inputs["past_seqlens"], inputs["past_seqlens"][0])}


def past_one_too_large(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"past_seqlens": inputs["past_seqlens"] + np.int32(1)}


def rotated_as(change: Callable[..., Any]) -> Callable[[], Patches]:
    honest = reference.rotate
    return lambda: {"rotate": lambda x, positions, *caches, **options: change(honest, x, positions, *caches, **options)}


def one_position_further(honest: Any, x: Any, positions: Any, *caches: Any, **options: Any) -> Any:
    return honest(x, positions + 1, *caches, **options)


def other_pairs(honest: Any, *given: Any, interleaved: bool, offset: int) -> Any:
    return honest(*given, interleaved=not interleaved, offset=offset)


def turned_back(honest: Any, x: Any, positions: Any, cos: Any, sin: Any, **options: Any) -> Any:
    return honest(x, positions, cos, -sin, **options)


def stored_as(change: Callable[..., Any]) -> Callable[[], Patches]:
    honest = reference.store
    return lambda: {"store": lambda values, storage, scale, rule: change(honest, values, storage, scale, rule)}


def truncated_codes(honest: Any, values: Any, storage: Any, scale: Any, rule: Any) -> Any:
    if scale is None:
        return honest(values, storage, scale, rule)
    return honest(np.trunc(values / scale) * scale, storage, scale, rule)


def halves_away_from_zero(honest: Any, values: Any, storage: Any, scale: Any, rule: Any) -> Any:
    if scale is None:
        return honest(values, storage, scale, rule)
    units = values / scale
    return honest(np.copysign(np.floor(np.abs(units) + 0.5), units) * scale, storage, scale, rule)


def swapped_nibbles(honest: Any, values: Any, storage: Any, scale: Any, rule: Any) -> Any:
    codes = honest(values, storage, scale, rule)
    return (codes >> 4 | codes << 4).astype(np.uint8) if storage.element == "int4" else codes


def unsigned_int4(honest: Any, values: Any, storage: Any, scale: Any, rule: Any) -> Any:
    codes = honest(values, storage, scale, rule)
    if storage.element != "int4":
        return codes
    return pack_int4(np.maximum(unpack_int4(codes, values.shape[-1]), 0))


def first_channel_scale(inputs: dict[str, Any]) -> dict[str, Any]:
    scales = {name: inputs[name] for name in ("k_scale", "v_scale") if name in inputs}
    return {name: np.broadcast_to(scale.flat[0], scale.shape).astype(np.float32) for name, scale in scales.items()}


def scale_of_k(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"v_scale": inputs["k_scale"]} if {"k_scale", "v_scale"} <= inputs.keys() else {}


def norm_without_epsilon(x: Any, weight: Any, epsilon: float) -> Any:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight.astype(np.float64)


def norm_over_all_heads(x: Any, weight: Any, epsilon: float) -> Any:
    mean = np.mean(x * x, axis=(-2, -1), keepdims=True)
    return x / np.sqrt(mean + epsilon) * weight.astype(np.float64)


def half_precision_norm(x: Any, weight: Any, epsilon: float) -> Any:
    with np.errstate(over="ignore"):
        mean = np.mean((x * x).astype(np.float16).astype(np.float64), axis=-1, keepdims=True)
    return x / np.sqrt(mean + epsilon) * weight.astype(np.float64)


def guessed_longest_query(spec: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Queries past tokens - batch + 1 of their sequence are dropped: their rows stay 0."""
    bound = max(1, len(inputs["query"]) - len(inputs["past_seqlens"]) + 1)
    bounds = inputs["cumulative_sequence_length"]
    values = [np.minimum(np.diff(bounds), bound)]
    shorter = np.concatenate([[0], np.cumsum(values)]).astype(np.int32)
    return spec, inputs | {"cumulative_sequence_length": shorter}


MUTANTS = [
    Mutant("window one key too wide", wider_window(1), among="window"),
    Mutant("window one key too narrow", wider_window(-1), among="window"),
    Mutant("window dropped", with_spec(local_window_size=-1), among="window"),
    Mutant("sink counted for each tile", patches=attend_as(sink_for_each_tile), among="sink"),
    Mutant("sink dropped", patches=lambda: {"sink_logits": lambda spec, inputs: None}, among="sink"),
    Mutant("softcap dropped", with_spec(softcap=0.0), among="softcap"),
    Mutant("scale ignored", with_spec(scale=1.0)),
    Mutant("past one too large", with_inputs(past_one_too_large)),
    Mutant("first sequence's past for all", with_inputs(first_length_for_all)),
    Mutant("block table ignored", with_inputs(sequential_blocks)),
    Mutant("page after the first in memory", patches=patched_slots(next_page_in_memory)),
    Mutant("unmapped page read as block 0", patches=patched_slots(unmapped_is_block_0), among="device_values"),
    Mutant("causal rule from the top left", patches=visible_as(top_left)),
    Mutant("one future key visible", patches=visible_as(padded_past)),
    Mutant("causal where it is not asked for", with_spec(is_causal=True), among="noncausal"),
    Mutant("bidirectional where causal is asked for", with_spec(is_causal=False)),
    Mutant("keys 16 to 31 of each tile skipped", patches=attend_as(halves_of_tiles_skipped)),
    Mutant("valid low logits masked", patches=attend_as(low_logits_masked), among="numerics"),
    Mutant("a row without keys is the mean of V", patches=attend_as(mean_of_nothing), among="device_values"),
    Mutant("products in half precision", patches=attend_as(half_precision_products), among="numerics"),
    Mutant("K used as V", patches=cached(lambda keys, values: (keys, keys[..., : values.shape[-1]]))),
    Mutant("K/V heads dealt round robin", patches=lambda: {"head_groups": interleaved_groups}),
    Mutant("slot_mapping ignored", without("slot_mapping"), among="slot_mapping"),
    Mutant("V with the scale of K", with_inputs(scale_of_k), among="per_channel"),
    Mutant(
        "rotary positions one too far",
        patches=rotated_as(
            lambda honest, x, positions, *caches, **options: honest(x, positions + 1, *caches, **options)
        ),
        among="rotary",
    ),
    Mutant(
        "rotary pairs of the other style",
        patches=rotated_as(
            lambda honest, *given, interleaved, offset: honest(*given, interleaved=not interleaved, offset=offset)
        ),
        among="rotary",
    ),
    Mutant(
        "rotary turned back",
        patches=rotated_as(
            lambda honest, x, positions, cos, sin, **options: honest(x, positions, cos, -sin, **options)
        ),
        among="rotary",
    ),
    Mutant("norm of the whole row", patches=lambda: {"rms_norm": norm_over_all_heads}, among="qk_norm"),
    Mutant("norm with a fixed epsilon", patches=lambda: {"rms_norm": norm_without_epsilon}, among="qk_norm"),
    Mutant("norm in half precision", patches=lambda: {"rms_norm": half_precision_norm}, among="qk_norm"),
    Mutant("codes truncated", patches=stored_as(truncated_codes), among="int8_cache"),
    Mutant("halves rounded away from zero", patches=stored_as(halves_away_from_zero), among="ties_to_even"),
    Mutant("nibbles swapped", patches=stored_as(swapped_nibbles), among="int4_cache"),
    Mutant("negative int4 codes lost", patches=stored_as(unsigned_int4), among="int4_cache"),
    Mutant("one channel's scale for all", with_inputs(first_channel_scale), among="per_channel"),
    Mutant("longest query guessed from the batch", guessed_longest_query, among="zero_tokens"),
]

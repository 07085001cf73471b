"""Sequences over caches of random codes, and what decodes that round queries and weights to 16 bits may give."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from paged_case import fetch, filled, run, step_words

from pageloom.attention.numerics.softmax import attend, head_groups
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.programs.attention import plan_attention
from pageloom.backends.webgpu.programs.attention_choice import AttentionBucket
from pageloom.backends.webgpu.programs.attention_decode import partials_bytes
from pageloom.backends.webgpu.programs.attention_form import AttentionBuffers, AttentionForm
from pageloom.backends.webgpu.programs.attention_tiles import query_tile_tokens
from pageloom.backends.webgpu.programs.elements import ElementKind
from pageloom.engine.batch import StepBatch

BLOCK = 16
LENGTHS = (1, 2, 8, 9, 63, 64, 65, 130, 1030)
CODES = {"int8": 128, "int4": 8}
HALF_UNIT = 1 / 65278
"""Half of the unit of an integer of 16 bits, two signed bytes, by the largest."""


@dataclass(frozen=True)
class Codes:
    """Sequences of `lengths` keys whose last is new, over shuffled blocks of codes; all other slots hold the extremes.

    `query` is float32 `[sequences, num_heads, head_size]`, with scale; codes are int8 `[blocks, 16, kv_heads, size]`.
    The weights of `keys_per_step` keys are rounded in units of their largest.
    """

    form: AttentionForm
    lengths: tuple[int, ...]
    table: np.ndarray
    query: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    keys_per_step: int

    def alone(self, sequence: int) -> Codes:
        one = slice(sequence, sequence + 1)
        return replace(self, lengths=self.lengths[one], table=self.table[one], query=self.query[one])

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Attention in float64, and how far a row may be from it: by the roundings of the query and of the weights to
        16 bits, and beside them those of float32 and of the output."""
        form = self.form
        outputs, budgets = np.zeros(self.query.shape), np.zeros((*self.query.shape[:2], 1))
        for sequence, length in enumerate(self.lengths):
            blocks, offsets = self.table[sequence][np.arange(length) // BLOCK], np.arange(length) % BLOCK
            keys, values = (
                codes[blocks, offsets].astype(np.float64).swapaxes(0, 1)[:, None] for codes in (self.keys, self.values)
            )
            query = head_groups(form.kv_num_heads, self.query[sequence, :, None].astype(np.float64))
            attended = attend(query, keys, values, np.ones((1, 1, 1, length), bool), scale=1.0)
            of_key = HALF_UNIT * np.abs(query).max(-1) * np.abs(keys).sum(-1).max(-1, keepdims=True)
            relative = np.expm1(2 * of_key) + self.keys_per_step * HALF_UNIT + 2.0**-11
            largest = np.abs(values).max(axis=(-1, -2), keepdims=True)[..., 0]
            outputs[sequence] = attended.output.reshape(form.num_heads, -1)
            budgets[sequence] = (relative * largest + 1e-3 * 2.0**-11).reshape(form.num_heads, 1)
        return outputs, budgets


def codes_of(
    key_kind: ElementKind,
    value_kind: ElementKind,
    *,
    keys_per_step: int,
    heads: tuple[int, int] = (4, 1),
    size: int = 64,
    query_scale: float = 1.0,
) -> Codes:
    """A query of random numbers, times `query_scale`, over caches of random codes."""
    rng = np.random.default_rng(0)
    num_heads, kv_num_heads = heads
    form = AttentionForm(
        num_heads=num_heads,
        kv_num_heads=kv_num_heads,
        head_size=size,
        v_head_size=size,
        block_size=BLOCK,
        key_kind=key_kind,
        value_kind=value_kind,
        output_kind="packed_f16",
    )
    needed = [-(-length // BLOCK) for length in LENGTHS]
    free = rng.permutation(sum(needed)).tolist()
    table = np.full((len(LENGTHS), max(needed)), -1)
    shape = (sum(needed), BLOCK, kv_num_heads, size)
    keys, values = (np.full(shape, -CODES[kind], np.int8) for kind in (key_kind, value_kind))
    for sequence, length in enumerate(LENGTHS):
        table[sequence, : needed[sequence]] = [free.pop() for _ in range(needed[sequence])]
        at = table[sequence][np.arange(length) // BLOCK], np.arange(length) % BLOCK
        for codes, kind in ((keys, key_kind), (values, value_kind)):
            codes[at] = rng.integers(-CODES[kind], CODES[kind], (length, *shape[2:]))
    query = rng.standard_normal((len(LENGTHS), num_heads, size)) * query_scale / CODES[key_kind] / size**0.5
    return Codes(form, LENGTHS, table, query.astype(np.float32), keys, values, keys_per_step)


def stored(codes: np.ndarray, kind: str) -> np.ndarray:
    """As the cache has them: a nibble of int4 is the code + 8, the even channel's the lower one."""
    if kind == "int8":
        return codes
    nibbles = (codes + 8).astype(np.uint8)
    return nibbles[..., ::2] | (nibbles[..., 1::2] << 4)


async def attended(device: Device, case: Codes, *, max_sequences: int | None = None) -> np.ndarray:
    """The kernel's output, float16 `[sequences, num_heads, head_size]`."""
    form, count = case.form, len(case.lengths)
    batch = StepBatch(
        input_ids=(0,) * count,
        feed_rows=(-1,) * count,
        cumulative_sequence_length=tuple(range(count + 1)),
        past_seqlens=tuple(length - 1 for length in case.lengths),
        block_table=tuple(map(tuple, case.table.tolist())),
        logits_rows=(),
    )
    bucket = AttentionBucket(count, max_sequences or count, 1, 2048)
    partials = partials_bytes(form, device.info, bucket.max_sequences, bucket.max_kv_len)
    output = np.full(case.query.shape, np.nan, np.float16)
    buffers = AttentionBuffers(
        query=filled(device, case.query),
        key_cache=filled(device, stored(case.keys, form.key_kind)),
        value_cache=filled(device, stored(case.values, form.value_kind)),
        output=filled(device, output),
        step=filled(device, step_words(batch, block_size=BLOCK, tile_tokens=query_tile_tokens(form))),
        partials=filled(device, np.full(partials // 4, np.nan, np.float32)),
    )
    planned = plan_attention(device.info, form, buffers, bucket=bucket, variant="gpu")
    await run(device, planned)
    result = await fetch(device, buffers.output, output)
    for buffer in {id(buffer): buffer for one in planned for buffer in one.buffers}.values():
        buffer.destroy()
    return result


def assert_within(case: Codes, actual: np.ndarray) -> None:
    expected, budget = case.expected()
    excess = np.abs(actual - expected) - budget
    assert (excess <= 0).all(), f"{(~(excess <= 0)).sum()} of {excess.size} elements are off, by up to {excess.max()}"

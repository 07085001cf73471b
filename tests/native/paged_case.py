"""Synthetic paged batches and caches, and running planned dispatches over numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from pageloom.attention.numerics.error_budget import attention_errors, output_budget
from pageloom.attention.numerics.softmax import attend, head_groups, refuse_nan
from pageloom.backends.webgpu.device import Buffer, Device, Dispatch
from pageloom.backends.webgpu.program import PlannedDispatch
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.programs.attention import plan_attention
from pageloom.backends.webgpu.programs.attention_check import decoder_form
from pageloom.backends.webgpu.programs.attention_choice import AttentionBucket, Variant
from pageloom.backends.webgpu.programs.attention_decode import partials_bytes
from pageloom.backends.webgpu.programs.attention_form import AttentionBuffers
from pageloom.backends.webgpu.programs.attention_tiles import query_tile_tokens
from pageloom.backends.webgpu.step_layout import StepLayout
from pageloom.engine.batch import RunnerLimits, StepBatch
from pageloom.model.layer_ops import PagedAttention, Rope

POISONS = {"nan": np.nan, "large": 6.0e4}

# Compilation dominates these tests: all of a run share one cache a device.
_PROGRAMS: WeakKeyDictionary[Device, ProgramCache] = WeakKeyDictionary()


def attention_op(
    num_heads: int = 9,
    kv_num_heads: int = 3,
    head_size: int = 64,
    *,
    window: int = -1,
    softcap: float = 0.0,
    rope: Rope | None = None,
    normalised: bool = False,
) -> PagedAttention:
    """SmolLM2's attention by default."""
    norms = ("q_norm", "k_norm") if normalised else (None, None)
    return PagedAttention(
        layer=0,
        qkv="qkv",
        output="attended",
        num_heads=num_heads,
        kv_num_heads=kv_num_heads,
        head_size=head_size,
        scale=head_size**-0.5,
        rope=rope,
        local_window_size=window,
        softcap=softcap,
        q_norm=norms[0],
        k_norm=norms[1],
    )


@dataclass(frozen=True)
class PagedCase:
    """Sequences of (past, new) tokens over a pool of shuffled blocks, all other slots poisoned.

    `query` is float32 `[tokens, num_heads, head_size]`, rotated and scaled. Caches are float16
    `[num_blocks, block_size, kv_num_heads, head_size]`, the new tokens' K and V already in place.
    """

    op: PagedAttention
    lengths: tuple[tuple[int, int], ...]
    block_size: int
    block_table: np.ndarray
    query: np.ndarray
    key_cache: np.ndarray
    value_cache: np.ndarray

    @property
    def bounds(self) -> list[int]:
        """Prefix sum of the new tokens."""
        return [0, *np.cumsum([new for _, new in self.lengths]).tolist()]

    @property
    def step_batch(self) -> StepBatch:
        return StepBatch(
            input_ids=(0,) * len(self.query),
            feed_rows=(-1,) * len(self.query),
            cumulative_sequence_length=tuple(self.bounds),
            past_seqlens=tuple(past for past, _ in self.lengths),
            block_table=tuple(map(tuple, self.block_table.tolist())),
            logits_rows=(),
        )

    def alone(self, sequence: int) -> PagedCase:
        """One sequence of this case, with the same caches and blocks."""
        one = slice(sequence, sequence + 1)
        tokens = slice(*self.bounds[sequence : sequence + 2])
        return replace(self, lengths=self.lengths[one], block_table=self.block_table[one], query=self.query[tokens])

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Attention in float64 `[tokens, num_heads, head_size]` and how far each row may be from it, `[..., 1]`.

        The caches are what they are: the budget is that of float32 arithmetic over the keys.
        """
        op, bounds = self.op, self.bounds
        output = np.zeros(self.query.shape)
        budget = np.zeros((*self.query.shape[:2], 1))
        for sequence, (past, new) in enumerate(self.lengths):
            if not new:
                continue
            positions, own = np.arange(past + new), np.arange(past, past + new)[:, None]
            blocks = self.block_table[sequence][positions // self.block_size]
            visible = (positions <= own) & (blocks >= 0)
            if op.local_window_size > 0:
                visible &= positions > own - op.local_window_size
            offsets = positions % self.block_size
            keys, values = (
                cache[blocks, offsets].astype(np.float64).swapaxes(0, 1)[:, None]
                for cache in (self.key_cache, self.value_cache)
            )
            rows = slice(*bounds[sequence : sequence + 2])
            query = head_groups(op.kv_num_heads, self.query[rows].astype(np.float64).swapaxes(0, 1))
            attended = attend(query, keys, values, visible[None, None], scale=1.0, softcap=op.softcap)
            errors = attention_errors(
                "float32",
                head_size=op.head_size,
                num_keys=np.broadcast_to(visible.sum(axis=-1), attended.mass.shape),
                logit_mass=attended.logit_mass,
                logit_size=attended.logit_size,
                softcap=op.softcap,
            )
            allowed = output_budget("float32", errors, attended.mass, attended.output)

            def by_token(rows: np.ndarray) -> np.ndarray:
                return rows.reshape(op.num_heads, *rows.shape[2:]).swapaxes(0, 1)

            output[rows] = by_token(attended.output)
            budget[rows] = by_token(allowed)[..., None]
        refuse_nan("output", output)
        return output, budget


def paged_case(
    op: PagedAttention,
    lengths: Sequence[tuple[int, int]],
    *,
    block_size: int = 16,
    poison: str = "nan",
    seed: int = 0,
    query_scale: float = 1.0,
) -> PagedCase:
    rng = np.random.default_rng(seed)
    columns = max(-(-(past + new) // block_size) for past, new in lengths) + 1
    needed = [-(-(past + new) // block_size) for past, new in lengths]
    num_blocks = sum(needed) + 3
    free = rng.permutation(num_blocks).tolist()
    table = np.full((len(lengths), columns), -1, np.int64)
    shape = (num_blocks, block_size, op.kv_num_heads, op.head_size)
    key_cache = np.full(shape, POISONS[poison], np.float16)
    value_cache = np.full(shape, -POISONS[poison], np.float16)
    for sequence, (past, new) in enumerate(lengths):
        for column in range(needed[sequence]):
            block = table[sequence, column] = free.pop()
            used = min(block_size, past + new - column * block_size)
            for cache in (key_cache, value_cache):
                cache[block, :used] = rng.standard_normal((used, *shape[2:])).astype(np.float16)
    num_tokens = sum(new for _, new in lengths)
    query = query_scale * rng.standard_normal((num_tokens, op.num_heads, op.head_size))
    return PagedCase(op, tuple(lengths), block_size, table, query.astype(np.float32), key_cache, value_cache)


def step_words(batch: StepBatch, *, block_size: int, tile_tokens: int) -> np.ndarray:
    """The step buffer of a batch, for limits that just fit it."""
    limits = RunnerLimits(
        max_tokens=max(1, len(batch.input_ids)),
        max_sequences=max(1, len(batch.past_seqlens)),
        num_blocks=2**20,
        block_size=block_size,
        max_blocks_per_sequence=max(map(len, batch.block_table)),
        max_candidates=64,
        max_adjustments=0,
        vocab_size=2**20,
    )
    return np.array(StepLayout(limits, tile_tokens).pack(batch), np.int32)


def filled(device: Device, data: np.ndarray, label: str = "") -> Buffer:
    """A buffer with the bytes of an array."""
    data = np.ascontiguousarray(data)
    buffer = device.buffer(data.nbytes, label)
    device.write(buffer, 0, data)
    return buffer


async def run(device: Device, planned: Sequence[PlannedDispatch]) -> None:
    programs = _PROGRAMS.setdefault(device, ProgramCache(device))
    commands = [Dispatch(await programs.pipeline(one.key), one.buffers, one.grid, one.label) for one in planned]
    device.submit(device.record(commands))


async def fetch(device: Device, buffer: Buffer, like: np.ndarray) -> np.ndarray:
    """The content of a buffer as an array of the shape and type of `like`."""
    data = await device.read(buffer, 0, -(-like.nbytes // 4) * 4)
    return np.frombuffer(data[: like.nbytes], like.dtype).reshape(like.shape).copy()


async def attended(
    device: Device,
    case: PagedCase,
    variant: Variant,
    *,
    bucket: AttentionBucket | None = None,
    tile_tokens: int | None = None,
) -> np.ndarray:
    """The kernel's output, float32 `[tokens, num_heads, head_size]`; all of it was NaN before."""
    bucket = bucket or AttentionBucket(
        max_tokens=len(case.query),
        max_sequences=len(case.lengths),
        max_query_len=max(new for _, new in case.lengths),
        max_kv_len=max(past + new for past, new in case.lengths),
    )
    form = decoder_form(device.info, case.op, case.block_size)
    tile_tokens = tile_tokens or query_tile_tokens(form)
    words = step_words(case.step_batch, block_size=case.block_size, tile_tokens=tile_tokens)
    partials = partials_bytes(form, device.info, bucket.max_sequences, bucket.max_kv_len)
    output = filled(device, np.full((bucket.max_tokens, *case.query.shape[1:]), np.nan, np.float32))
    buffers = AttentionBuffers(
        query=filled(device, np.resize(case.query, (bucket.max_tokens, *case.query.shape[1:]))),
        key_cache=filled(device, case.key_cache),
        value_cache=filled(device, case.value_cache),
        output=output,
        step=filled(device, words),
        partials=filled(device, np.full(partials // 4, np.nan, np.float32)),
    )
    planned = plan_attention(device.info, form, buffers, bucket=bucket, tile_tokens=tile_tokens, variant=variant)
    await run(device, planned)
    result = await fetch(device, output, np.zeros((bucket.max_tokens, *case.query.shape[1:]), np.float32))
    for buffer in {id(buffer): buffer for one in planned for buffer in one.buffers}.values():
        buffer.destroy()
    assert np.isnan(result[len(case.query) :]).all(), "rows past the step's tokens were written"
    return result[: len(case.query)]


def assert_within(actual: np.ndarray, expected: np.ndarray, budget: np.ndarray) -> None:
    """Every element within its budget; a NaN is outside of any."""
    excess = np.abs(actual - expected) - budget
    assert (excess <= 0).all(), f"{(~(excess <= 0)).sum()} of {excess.size} elements are off, by up to {excess.max()}"

"""Pages into dense tensors, for libraries that read K and V where they lie in order; and which sequences that would
spoil."""

from __future__ import annotations

import triton
import triton.language as tl

from pageloom.backends.cuda.kernels.rows import sequence_lengths


@triton.jit(
    do_not_specialize=["num_tokens", "rows", "limit", "columns", "num_blocks", "bound", "chunks", "block_shift"]
)
def gather_kernel(
    key_cache, value_cache, dense_key, dense_value, dense_lengths, flags, starts, lengths, table,
    num_tokens, rows, limit, columns, num_blocks, bound, chunks, k_block, k_row, v_block, v_row, block_shift,
    WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr, BLOCK_N: tl.constexpr,
    COLUMNS_BLOCK: tl.constexpr, GATHERS: tl.constexpr,
):  # fmt: skip
    """Copy BLOCK_N rows of one sequence to `dense_key` and `dense_value` [B, bound, WIDTH].

    `dense_lengths` gets the keys of each sequence, and 0 for one that is flagged: one that takes no part, that an
    unmapped page leaves a hole in, or whose new tokens are not the `rows` that each sequence should have. No dense
    tensor stands for such a sequence, so it is left to another kernel.
    """
    sequence = tl.program_id(0) // chunks
    chunk = tl.program_id(0) % chunks
    start, new, _, keys = sequence_lengths(sequence, starts, lengths, lengths, num_tokens, 0, limit, 0, "paged")
    row = table + sequence.to(tl.int64) * columns
    if chunk == 0:
        used = (keys + (1 << block_shift) - 1) >> block_shift
        holes = 0
        for first in range(0, used, COLUMNS_BLOCK):
            column = first + tl.arange(0, COLUMNS_BLOCK)
            block = tl.load(row + column, mask=column < used, other=0)
            holes += tl.sum(((block < 0) | (block >= num_blocks)).to(tl.int32), 0)
        flagged = (holes > 0) | (keys == 0) | (keys > bound) | (new != rows) | (start != sequence * rows)
        tl.store(dense_lengths + sequence, tl.where(flagged, 0, keys))
        tl.store(flags + sequence, flagged.to(tl.int32))
    if GATHERS:
        positions = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = (positions < keys) & (positions < bound)
        block = tl.load(row + (positions >> block_shift), mask=inside, other=-1)
        mapped = inside & (block >= 0) & (block < num_blocks)
        channels = tl.arange(0, WIDTH_BLOCK)
        mask = mapped[:, None] & (channels < WIDTH)[None, :]
        stored = (positions < bound)[:, None] & (channels < WIDTH)[None, :]
        target = (sequence.to(tl.int64) * bound + positions)[:, None] * WIDTH + channels[None, :]
        place = (positions & ((1 << block_shift) - 1)).to(tl.int64)
        source = block.to(tl.int64) * k_block + place * k_row
        tl.store(dense_key + target, tl.load(key_cache + source[:, None] + channels[None, :], mask=mask, other=0.0),
                 mask=stored)  # fmt: skip
        source = block.to(tl.int64) * v_block + place * v_row
        tl.store(dense_value + target, tl.load(value_cache + source[:, None] + channels[None, :], mask=mask, other=0.0),
                 mask=stored)  # fmt: skip


@triton.jit
def clear_hidden_kernel(
    output, lengths, rows, o_batch, o_row, o_head, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Set the rows of the output that see none of `lengths` keys to 0: libraries leave in them what they please."""
    sequence = tl.program_id(0) // rows
    row = tl.program_id(0) % rows
    keys = tl.load(lengths + sequence)
    hidden = keys == 0
    if CAUSAL:
        hidden = hidden | (keys - rows + row < 0)
    if hidden:
        channels = tl.arange(0, WIDTH_BLOCK)
        zero = tl.zeros([WIDTH_BLOCK], output.dtype.element_ty)
        for head in range(HEADS):
            target = output + sequence.to(tl.int64) * o_batch + row.to(tl.int64) * o_row + head * o_head
            tl.store(target + channels, zero, mask=channels < WIDTH)

"""The step buffer: everything that changes from one step to the next, in one write.

One array of u32 words. A header of fixed words gives counts and the offsets (in words) of the arrays behind it, so that
shaders need no parameter for a capacity. `wgsl/lib/step.wgsl.j2` names the same words in the same order.

| array | words | content |
|---|---|---|
| TOKEN_IDS | max_tokens | id of token t |
| FEED_ROWS | max_tokens | i32: -1, or the row of the previous step whose best candidate token t is |
| POSITIONS | max_tokens | absolute position of token t |
| SLOTS | max_tokens | i32: block id * block_size + offset where K and V of token t go; -1 stores nothing |
| TOKEN_SEQUENCES | max_tokens | sequence of token t |
| CUMULATIVE_LENGTHS | max_sequences + 1 | prefix sum of the new tokens |
| PAST_LENGTHS | max_sequences | tokens already cached |
| BLOCK_TABLE | max_sequences * MAX_BLOCKS | i32 rows of physical block ids, -1 where unmapped |
| TILES | 3 * max_tokens | (sequence, first token, number of tokens): query tiles, none across two sequences |
| LOGITS_ROWS | max_sequences | token index of each wanted row |
| ADJUSTMENTS | 4 * max_adjustments | (row, token id, divisor as f32 bits, bias as f32 bits) |
"""

from __future__ import annotations

import array
import itertools
import struct
from dataclasses import dataclass

from pageloom.engine.batch import LogitAdjustment, RunnerLimits, StepBatch

HEADER = (
    "NUM_TOKENS", "NUM_SEQUENCES", "NUM_LOGITS_ROWS", "NUM_TILES", "MAX_BLOCKS", "NUM_ADJUSTMENTS",
    "TOKEN_IDS", "FEED_ROWS", "POSITIONS", "SLOTS", "TOKEN_SEQUENCES", "CUMULATIVE_LENGTHS", "PAST_LENGTHS",
    "BLOCK_TABLE", "TILES", "LOGITS_ROWS", "ADJUSTMENTS",
)  # fmt: skip


def query_tiles(cumulative_sequence_length: tuple[int, ...], tile_tokens: int) -> list[tuple[int, int, int]]:
    """Cut each sequence's new tokens into tiles of at most `tile_tokens`: (sequence, first token, number of tokens)."""
    return [
        (sequence, first, min(tile_tokens, end - first))
        for sequence, (start, end) in enumerate(itertools.pairwise(cumulative_sequence_length))
        for first in range(start, end, tile_tokens)
    ]


@dataclass(frozen=True, slots=True)
class StepLayout:
    """Packs a `StepBatch` into the words of the step buffer for given limits."""

    limits: RunnerLimits
    tile_tokens: int

    def offsets(self) -> dict[str, int]:
        limits = self.limits
        sizes = {
            "TOKEN_IDS": limits.max_tokens,
            "FEED_ROWS": limits.max_tokens,
            "POSITIONS": limits.max_tokens,
            "SLOTS": limits.max_tokens,
            "TOKEN_SEQUENCES": limits.max_tokens,
            "CUMULATIVE_LENGTHS": limits.max_sequences + 1,
            "PAST_LENGTHS": limits.max_sequences,
            "BLOCK_TABLE": limits.max_sequences * limits.max_blocks_per_sequence,
            "TILES": 3 * limits.max_tokens,
            "LOGITS_ROWS": limits.max_sequences,
            "ADJUSTMENTS": 4 * limits.max_adjustments,
        }
        offsets = {}
        position = len(HEADER)
        for name, size in sizes.items():
            offsets[name] = position
            position += size
        offsets["END"] = position
        return offsets

    @property
    def num_words(self) -> int:
        return self.offsets()["END"]

    def pack(self, batch: StepBatch) -> array.array[int]:
        """The whole buffer for one step, as signed 32-bit words."""
        limits, offsets = self.limits, self.offsets()
        words = array.array("i", bytes(4 * self.num_words))
        tiles = query_tiles(batch.cumulative_sequence_length, self.tile_tokens)
        counts = {
            "NUM_TOKENS": len(batch.input_ids),
            "NUM_SEQUENCES": len(batch.past_seqlens),
            "NUM_LOGITS_ROWS": len(batch.logits_rows),
            "NUM_TILES": len(tiles),
            "MAX_BLOCKS": limits.max_blocks_per_sequence,
            "NUM_ADJUSTMENTS": len(batch.adjustments),
        }
        for index, name in enumerate(HEADER):
            words[index] = counts[name] if name in counts else offsets[name]

        def put(name: str, values: list[int]) -> None:
            start = offsets[name]
            words[start : start + len(values)] = array.array("i", values)

        positions: list[int] = []
        slots: list[int] = []
        sequences: list[int] = []
        table: list[int] = []
        for sequence, past in enumerate(batch.past_seqlens):
            blocks = batch.block_table[sequence]
            start, end = batch.cumulative_sequence_length[sequence : sequence + 2]
            for position in range(past, past + end - start):
                block, offset = divmod(position, limits.block_size)
                positions.append(position)
                slots.append(blocks[block] * limits.block_size + offset)
                sequences.append(sequence)
            table.extend(blocks)
            table.extend([-1] * (limits.max_blocks_per_sequence - len(blocks)))
        put("TOKEN_IDS", list(batch.input_ids))
        put("FEED_ROWS", list(batch.feed_rows))
        put("POSITIONS", positions)
        put("SLOTS", slots)
        put("TOKEN_SEQUENCES", sequences)
        put("CUMULATIVE_LENGTHS", list(batch.cumulative_sequence_length))
        put("PAST_LENGTHS", list(batch.past_seqlens))
        put("BLOCK_TABLE", table)
        put("TILES", [word for tile in tiles for word in tile])
        put("LOGITS_ROWS", list(batch.logits_rows))
        put("ADJUSTMENTS", [word for entry in batch.adjustments for word in _adjustment_words(entry)])
        return words


def _adjustment_words(entry: LogitAdjustment) -> tuple[int, ...]:
    return struct.unpack("<4i", struct.pack("<iiff", entry.row, entry.token_id, entry.divisor, entry.bias))

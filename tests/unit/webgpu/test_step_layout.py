"""The step buffer holds what the shaders look for, where its header says."""

import re
import struct
from pathlib import Path

from pageloom.backends.webgpu.step_layout import HEADER, StepLayout, query_tiles
from pageloom.engine.batch import LogitAdjustment, RunnerLimits, StepBatch

LIMITS = RunnerLimits(
    max_tokens=32,
    max_sequences=4,
    num_blocks=9,
    block_size=16,
    max_blocks_per_sequence=3,
    max_candidates=8,
    max_adjustments=4,
    vocab_size=100,
)
BATCH = StepBatch(
    input_ids=(5, 6, 7, 0),
    feed_rows=(-1, -1, -1, 2),
    cumulative_sequence_length=(0, 3, 3, 4),
    past_seqlens=(15, 4, 32),
    block_table=((8, 2), (1,), (0, 3, 7)),
    logits_rows=(2, 3),
    adjustments=(LogitAdjustment(row=1, token_id=42, divisor=1.5, bias=-0.25),),
)


def read(words, name, count):
    start = words[HEADER.index(name)]
    return list(words[start : start + count])


def test_the_header_names_counts_and_offsets_in_the_order_of_the_shader_library():
    template = (Path(__file__).parents[3] / "wgsl/lib/step.wgsl.j2").read_text()
    names = re.findall(r'"([A-Z_]+)"', template)
    assert tuple(names) == HEADER


def test_positions_and_slots_continue_after_the_cached_tokens_across_a_block_edge():
    words = StepLayout(LIMITS, tile_tokens=8).pack(BATCH)
    assert read(words, "POSITIONS", 4) == [15, 16, 17, 32]
    assert read(words, "SLOTS", 4) == [8 * 16 + 15, 2 * 16, 2 * 16 + 1, 7 * 16]
    assert read(words, "TOKEN_SEQUENCES", 4) == [0, 0, 0, 2]


def test_block_table_rows_are_padded_with_minus_one_to_the_longest_row():
    words = StepLayout(LIMITS, tile_tokens=8).pack(BATCH)
    assert words[HEADER.index("MAX_BLOCKS")] == 3
    assert read(words, "BLOCK_TABLE", 9) == [8, 2, -1, 1, -1, -1, 0, 3, 7]


def test_adjustments_carry_their_floats_as_bits():
    words = StepLayout(LIMITS, tile_tokens=8).pack(BATCH)
    row, token, *floats = read(words, "ADJUSTMENTS", 4)
    assert (row, token) == (1, 42)
    assert struct.unpack("<2f", struct.pack("<2i", *floats)) == (1.5, -0.25)


def test_no_query_tile_spans_two_sequences_and_every_token_is_in_one():
    tiles = query_tiles((0, 5, 5, 6, 14), 4)
    assert tiles == [(0, 0, 4), (0, 4, 1), (2, 5, 1), (3, 6, 4), (3, 10, 4)]


def test_the_largest_step_fits_the_words_reserved_for_it():
    layout = StepLayout(LIMITS, tile_tokens=1)
    largest = StepBatch(
        input_ids=(1,) * 32,
        feed_rows=(-1,) * 32,
        cumulative_sequence_length=(0, 8, 16, 24, 32),
        past_seqlens=(40,) * 4,
        block_table=((1, 2, 3),) * 4,
        logits_rows=(7, 15, 23, 31),
        adjustments=tuple(LogitAdjustment(row, 1) for row in range(4)),
    )
    assert len(layout.pack(largest)) == layout.max_words

"""Paged attention on the device against float64, over pools whose unread slots are poisoned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from paged_case import assert_within, attended, attention_op, paged_case

from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.programs.attention_choice import VARIANTS, AttentionBucket, Variant
from pageloom.errors import NotSupported

MIXED = [(0, 33), (200, 1), (5, 0), (300, 1), (31, 17), (0, 0), (0, 1), (127, 1), (128, 1), (260, 40)]


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest, driver: str) -> Variant:
    if request.param == "gpu" and driver == "lavapipe":
        pytest.skip("lavapipe takes most of a minute to compile each gpu program; the first tests run some there")
    return request.param


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("poison", ["nan", "large"])
async def test_decodes_and_prefills_of_ragged_length_share_a_batch(
    device: Device, variant: Variant, poison: str
) -> None:
    case = paged_case(attention_op(), MIXED, poison=poison)
    assert_within(await attended(device, case, variant), *case.expected())


async def test_a_decode_is_right_at_every_length_up_to_four_blocks(device: Device, variant: Variant) -> None:
    case = paged_case(attention_op(), [(past, 1) for past in range(65)])
    assert_within(await attended(device, case, variant), *case.expected())


async def test_a_prefill_is_right_at_every_length_up_to_four_blocks(device: Device, variant: Variant) -> None:
    case = paged_case(attention_op(), [(0, new) for new in range(1, 66)])
    assert_within(await attended(device, case, variant), *case.expected())


@pytest.mark.parametrize(
    ("variant", "block_size"),
    [("software", 32), ("software", 256), ("gpu", 256), pytest.param("gpu", 32, marks=pytest.mark.slow)],
    indirect=["variant"],
)
async def test_any_block_size_gives_the_same_result(device: Device, variant: Variant, block_size: int) -> None:
    case = paged_case(attention_op(), MIXED, block_size=block_size)
    assert_within(await attended(device, case, variant), *case.expected())


@pytest.mark.parametrize(
    ("num_heads", "kv_num_heads", "head_size"),
    [(8, 2, 80), (4, 4, 96), (16, 2, 128), (5, 1, 32), (6, 3, 40), (2, 1, 248)],
)
async def test_head_sizes_and_groups_on_a_cpu_adapter(
    device: Device, num_heads: int, kv_num_heads: int, head_size: int
) -> None:
    case = paged_case(attention_op(num_heads, kv_num_heads, head_size), MIXED)
    assert_within(await attended(device, case, "software"), *case.expected())


@pytest.mark.parametrize(("num_heads", "kv_num_heads", "head_size"), [(4, 1, 256), (3, 3, 80), (16, 1, 40)])
async def test_head_sizes_and_groups_of_either_program(
    device: Device, variant: Variant, num_heads: int, kv_num_heads: int, head_size: int
) -> None:
    case = paged_case(attention_op(num_heads, kv_num_heads, head_size), MIXED)
    assert_within(await attended(device, case, variant), *case.expected())


@pytest.mark.parametrize("window", [1, 4, 15, 16])
async def test_a_window_of_any_size_on_a_cpu_adapter(device: Device, window: int) -> None:
    case = paged_case(attention_op(window=window), MIXED)
    assert_within(await attended(device, case, "software"), *case.expected())


@pytest.mark.parametrize(
    ("variant", "window"),
    [("software", 17), ("software", 130), ("gpu", 130), pytest.param("gpu", 17, marks=pytest.mark.slow)],
    indirect=["variant"],
)
async def test_a_window_that_starts_inside_a_page(device: Device, variant: Variant, window: int) -> None:
    case = paged_case(attention_op(window=window), MIXED)
    assert_within(await attended(device, case, variant), *case.expected())


async def test_a_window_shows_exactly_its_keys_own_included(device: Device, variant: Variant) -> None:
    # The value at position p is the unit vector p, so an output row is the row of weights.
    case = paged_case(attention_op(window=4), [(0, 40), (39, 1)], query_scale=0.1)
    for sequence, length in enumerate((40, 40)):
        for position in range(length):
            block = case.block_table[sequence, position // 16]
            case.value_cache[block, position % 16] = np.eye(64)[position]
    weights = await attended(device, case, variant)
    for row, position in enumerate([*range(40), 39]):
        for head in range(9):
            assert np.flatnonzero(weights[row, head]).tolist() == list(range(max(0, position - 3), position + 1))


async def test_a_window_as_long_as_the_context_is_no_window(device: Device, variant: Variant) -> None:
    case = paged_case(attention_op(), MIXED)
    windowed = replace(case, op=attention_op(window=301))
    np.testing.assert_array_equal(await attended(device, windowed, variant), await attended(device, case, variant))


async def test_a_softcap_changes_the_result_and_is_exact(device: Device, variant: Variant) -> None:
    case = paged_case(attention_op(softcap=5.0), MIXED)
    capped = await attended(device, case, variant)
    assert_within(capped, *case.expected())
    uncapped, budget = replace(case, op=attention_op()).expected()
    assert (np.abs(capped - uncapped) > budget).mean() > 0.5


async def test_a_token_gets_the_same_bits_alone_and_in_a_batch(device: Device, variant: Variant) -> None:
    case = paged_case(attention_op(), MIXED)
    small, large = AttentionBucket(128, 16, 128, max_kv_len=512), AttentionBucket(64, 1, 64, max_kv_len=1024)
    together = await attended(device, case, variant, bucket=small)
    for sequence, (_, new) in enumerate(case.lengths):
        if new:
            alone = await attended(device, case.alone(sequence), variant, bucket=large)
            np.testing.assert_array_equal(alone, together[slice(*case.bounds[sequence : sequence + 2])])


async def test_a_chunked_prefill_gets_the_same_bits_as_a_whole_one(device: Device, variant: Variant) -> None:
    whole = paged_case(attention_op(), [(0, 70)])
    expected = await attended(device, whole, variant)
    for past, new in [(0, 19), (19, 34), (53, 17)]:
        chunk = replace(whole, lengths=((past, new),), query=whole.query[past : past + new])
        np.testing.assert_array_equal(await attended(device, chunk, variant), expected[past : past + new])


async def test_very_negative_logits_still_normalise(device: Device, variant: Variant) -> None:
    case = paged_case(attention_op(2, 1, 64), [(140, 1), (0, 20)])
    finite = np.isfinite(case.key_cache)
    case.key_cache[finite] = 32.0
    case.query[:] = -32.0  # q.k = -65536
    assert_within(await attended(device, case, variant), *case.expected())


async def test_a_row_that_sees_no_key_is_zero_and_unmapped_pages_are_masked(device: Device, variant: Variant) -> None:
    case = paged_case(attention_op(), [(150, 1), (150, 1), (40, 9), (0, 9)])
    num_blocks = len(case.key_cache)
    case.block_table[0] = -1
    case.block_table[1, 2] = num_blocks  # past the pool
    case.block_table[2, 0] = -1
    case.block_table[3] = 2**20
    actual = await attended(device, case, variant)
    assert (actual[case.bounds[0] : case.bounds[1]] == 0).all()
    assert (actual[case.bounds[3] : case.bounds[4]] == 0).all()
    case.block_table[case.block_table >= num_blocks] = -1
    assert_within(actual, *case.expected())


async def test_a_long_context_is_right(device: Device, variant: Variant) -> None:
    case = paged_case(attention_op(2, 1, 64), [(8191, 1), (4096, 3)])
    assert_within(await attended(device, case, variant), *case.expected())


async def test_the_gpu_programs_are_refused_by_name_where_the_device_is_too_small(limited_device) -> None:
    device = await limited_device({"maxComputeInvocationsPerWorkgroup": 64})
    case = paged_case(attention_op(), [(5, 1)])
    with pytest.raises(NotSupported, match="maxComputeInvocationsPerWorkgroup is 64, and 256 is needed"):
        await attended(device, case, "gpu")

"""Whatever runs beside a request, its tokens are those of the model alone."""

import itertools

import pytest

from pageloom.engine.batch import StepBatch
from pageloom.engine.config import EngineConfig
from pageloom.engine.sampling_params import SamplingParams
from tests.fake_runner import FakeRunner, limits
from tests.unit.engine.rig import Rig, alone, expected, output_ids, prompt

EIGHT = SamplingParams(max_tokens=8)


def offsets(batch: StepBatch) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the new tokens of each sequence start and end."""
    return batch.cumulative_sequence_length[:-1], batch.cumulative_sequence_length[1:]


@pytest.mark.parametrize("length", range(1, 18))
async def test_every_prompt_length_around_block_edges_gives_the_models_tokens(length: int) -> None:
    rig = Rig()
    rig.add(prompt(length, length))
    assert output_ids(await rig.run()) == [expected(prompt(length, length), EIGHT)]


async def test_a_decode_continues_at_the_first_position_not_cached_yet() -> None:
    rig = Rig(config=EngineConfig(pipeline_depth=1))
    rig.add(prompt(1, 9), max_tokens=4, ignore_eos=True)
    await rig.run()
    assert [batch.past_seqlens for batch in rig.runner.batches] == [(0,), (9,), (10,), (11,)]
    assert [len(batch.block_table[0]) for batch in rig.runner.batches] == [3, 3, 3, 3]


async def test_the_last_sampled_token_is_never_fed_back() -> None:
    rig = Rig()
    rig.add(prompt(1, 4), max_tokens=1)
    await rig.run()
    assert len(rig.runner.batches) == 1
    assert rig.core.stats().peak_blocks == 1


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_a_batch_with_others_arriving_and_leaving_equals_each_alone(depth: int) -> None:
    rig = Rig(config=EngineConfig(pipeline_depth=depth))
    jobs = [(prompt(i, 1 + 5 * i % 13), 1 + 3 * i % 11) for i in range(12)]
    for prompt_ids, max_tokens in jobs:
        rig.add(prompt_ids, max_tokens=max_tokens)
        await rig.step()
    completions = await rig.run()
    assert output_ids(completions) == [expected(ids, SamplingParams(max_tokens=n)) for ids, n in jobs]
    assert max(len(batch.past_seqlens) for batch in rig.runner.batches) == 4


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 16])
async def test_chunks_of_any_size_give_the_same_tokens(budget: int) -> None:
    rig = Rig(config=EngineConfig(token_budget=budget))
    prompts = [prompt(i, 11 + i) for i in range(3)]
    for prompt_ids in prompts:
        rig.add(prompt_ids)
    assert output_ids(await rig.run()) == [expected(prompt_ids, EIGHT) for prompt_ids in prompts]
    for batch in rig.runner.batches:
        ends = [past + end - start for past, start, end in zip(batch.past_seqlens, *offsets(batch), strict=True)]
        assert len(batch.input_ids) <= budget
        assert [len(table) for table in batch.block_table] == [-(-end // 4) for end in ends]


async def test_decodes_go_first_and_prompts_take_what_is_left_of_the_step() -> None:
    rig = Rig(runner=FakeRunner(limits(max_tokens=6)), config=EngineConfig(pipeline_depth=1))
    rig.add(prompt(1, 3), ignore_eos=True)
    await rig.step()
    rig.add(prompt(2, 12))
    await rig.step()
    await rig.step()
    lengths = [batch.cumulative_sequence_length for batch in rig.runner.batches]
    assert lengths == [(0, 3), (0, 1, 6), (0, 1, 6)]


async def test_rows_are_bounded_by_the_runner() -> None:
    rig = Rig(runner=FakeRunner(limits(max_sequences=2)))
    for i in range(5):
        rig.add(prompt(i, 3))
    await rig.run()
    assert max(len(batch.past_seqlens) for batch in rig.runner.batches) == 2


async def test_a_small_budget_still_gives_every_running_request_its_token() -> None:
    rig = Rig(config=EngineConfig(token_budget=2, pipeline_depth=1))
    for i in range(4):
        rig.add(prompt(i, 1), ignore_eos=True, max_tokens=5)
    await rig.step()
    await rig.step()
    assert [request.num_known for request in rig.requests] == [3, 3, 1, 1]


async def test_a_second_run_on_dirty_pages_gives_the_same_tokens() -> None:
    rig = Rig(runner=FakeRunner(limits(num_blocks=8, max_blocks_per_sequence=8)))
    for _ in range(2):
        for i in range(4):
            rig.add(prompt(i, 9))
        await rig.run()
    ids = output_ids([request.completion() for request in rig.requests])
    assert ids[:4] == ids[4:] == [expected(prompt(i, 9), EIGHT) for i in range(4)]


class TestPipelining:
    async def test_the_next_step_is_fed_on_the_device_before_the_last_is_read(self) -> None:
        rig = Rig()
        rig.add(prompt(1, 3), ignore_eos=True)
        rig.add(prompt(2, 2), ignore_eos=True)
        await rig.run()
        assert [batch.feed_rows for batch in rig.runner.batches][:3] == [(-1,) * 5, (0, 1), (0, 1)]
        assert all(batch.input_ids == (0, 0) for batch in rig.runner.batches[1:])

    async def test_a_row_is_fed_from_its_place_in_the_step_before(self) -> None:
        rig = Rig()
        rig.add(prompt(1, 3), ignore_eos=True, max_tokens=2)
        rig.add(prompt(2, 2), ignore_eos=True, max_tokens=4)
        completions = await rig.run()
        assert [batch.feed_rows for batch in rig.runner.batches] == [(-1,) * 5, (0, 1), (1,), (0,)]
        assert output_ids(completions)[1] == expected(prompt(2, 2), SamplingParams(max_tokens=4, ignore_eos=True))

    async def test_what_ran_past_a_stop_is_discarded_and_its_blocks_go_to_others(self) -> None:
        ids = expected(prompt(3, 3), SamplingParams(max_tokens=8, ignore_eos=True))
        rig = Rig(runner=FakeRunner(limits(num_blocks=3, max_blocks_per_sequence=3)))
        rig.add(prompt(3, 3), stop_token_ids=(ids[2],), ignore_eos=True)
        rig.add(prompt(4, 7))
        first, second = await rig.run()
        assert (list(first.output_ids), first.stop_reason) == (ids[: ids.index(ids[2]) + 1], ids[2])
        assert list(second.output_ids) == expected(prompt(4, 7), SamplingParams(max_tokens=6))
        assert first.usage.completion_tokens == len(first.output_ids)

    async def test_a_sampled_row_makes_the_next_step_wait_for_the_host(self) -> None:
        rig = Rig()
        rig.add(prompt(1, 3), temperature=1.0, seed=1, ignore_eos=True)
        rig.add(prompt(2, 3), ignore_eos=True)
        await rig.run()
        assert all(row == -1 for batch in rig.runner.batches for row in batch.feed_rows)

    async def test_every_depth_gives_the_same_tokens(self) -> None:
        rigs = [Rig(config=EngineConfig(pipeline_depth=depth)) for depth in (1, 2, 4)]
        for rig in rigs:
            for i in range(6):
                rig.add(prompt(i, 4 + i))
            await rig.run()
        for first, second in itertools.pairwise(rigs):
            assert [r.token_ids for r in first.requests] == [r.token_ids for r in second.requests]

    async def test_a_request_left_out_of_a_step_waits_for_its_token(self) -> None:
        """The second prompt waits for the blocks of the first, then takes one step's adjustments from the third: the
        step before the next one is not the one that has the third one's row."""
        rig = Rig(runner=FakeRunner(limits(max_adjustments=4)), config=EngineConfig(pipeline_depth=3))
        bias = {4: 1.0, 8: 2.0, 9: -1.0}
        jobs = [(prompt(1, 13), {}, 8), (prompt(1, 13), bias, 1), (prompt(2, 2), bias, 8)]
        for prompt_ids, changes, max_tokens in jobs:
            rig.add(prompt_ids, logit_bias=changes, max_tokens=max_tokens, ignore_eos=True)
        completions = await rig.run()
        for (prompt_ids, changes, max_tokens), completion in zip(jobs, completions, strict=True):
            single = await alone(prompt_ids, logit_bias=changes, max_tokens=max_tokens, ignore_eos=True)
            assert completion.output_ids == single.output_ids

"""A beginning that several prompts share is computed once and kept once."""

import pytest

from pageloom.engine.config import EngineConfig
from pageloom.engine.sampling_params import SamplingParams
from tests.fake_runner import FakeRunner, limits
from tests.unit.engine.rig import Rig, expected, output_ids, prompt

EIGHT = SamplingParams(max_tokens=8)


def roomy(**changes: int) -> FakeRunner:
    return FakeRunner(limits(**{"num_blocks": 200, "max_sequences": 16, "max_blocks_per_sequence": 40, **changes}))


@pytest.mark.parametrize("budget", [7, 32, 512])
async def test_sixteen_prompts_submitted_together_compute_their_common_prefix_once(budget: int) -> None:
    common = prompt(5, 100)
    rig = Rig(runner=roomy(max_tokens=budget), context_length=160)
    prompts = [[*common, *prompt(i, 3 + i % 2)] for i in range(16)]
    for prompt_ids in prompts:
        rig.add(prompt_ids)
    completions = await rig.run()
    assert output_ids(completions) == [expected(prompt_ids, EIGHT) for prompt_ids in prompts]
    assert [completion.usage.cached_tokens for completion in completions] == [0] + [100] * 15
    stats = rig.core.stats()
    assert stats.cached_tokens == 15 * 100
    assert stats.prefill_tokens == 100 + sum(len(prompt_ids) - 100 for prompt_ids in prompts)
    assert stats.peak_shared_blocks == 25
    assert stats.peak_blocks < 25 + 16 * 4


async def test_others_go_on_while_a_prompt_waits_for_a_block_under_way() -> None:
    rig = Rig(runner=roomy(max_tokens=64), config=EngineConfig(pipeline_depth=1))
    first = rig.add(prompt(1, 10))
    twin = rig.add(prompt(1, 10))
    other = rig.add(prompt(2, 5))
    await rig.step()
    assert [request.state.value for request in (first, twin, other)] == ["running", "waiting", "running"]
    await rig.step()
    assert twin.state.value == "running"
    assert twin.cached_tokens == 8


async def test_a_prompt_found_whole_still_computes_its_last_token() -> None:
    rig = Rig(config=EngineConfig(pipeline_depth=1))
    for _ in range(2):
        rig.add(prompt(1, 8), max_tokens=1)
        await rig.run()
    assert [len(batch.input_ids) for batch in rig.runner.batches] == [8, 4]
    assert [request.token_ids[8:] for request in rig.requests] == [
        expected(prompt(1, 8), SamplingParams(max_tokens=1))
    ] * 2


async def test_output_tokens_are_shared_with_a_following_turn() -> None:
    rig = Rig()
    first = rig.add(prompt(1, 6), max_tokens=7, ignore_eos=True)
    await rig.run()
    turn = [*first.token_ids, 1, 2, 3]
    second = rig.add(turn)
    await rig.run()
    assert second.cached_tokens == 12
    assert second.token_ids[len(turn) :] == expected(turn, EIGHT)


async def test_a_prefix_is_read_through_the_table_wherever_its_blocks_lie() -> None:
    """The pool is used in between, so the shared and the new blocks are out of order."""
    rig = Rig(runner=FakeRunner(limits(num_blocks=12, max_blocks_per_sequence=12)))
    for i in (3, 1, 2):
        rig.add(prompt(i, 9))
    await rig.run()
    rig.add([*prompt(2, 9), *prompt(4, 3)])
    await rig.run()
    tables = [table for batch in rig.runner.batches for table in batch.block_table]
    assert any(list(table) != sorted(table) for table in tables)
    assert rig.requests[3].cached_tokens == 8
    assert rig.requests[3].token_ids[12:] == expected(rig.requests[3].token_ids[:12], EIGHT)


async def test_a_cache_salt_keeps_equal_prompts_apart() -> None:
    rig = Rig(runner=roomy())
    for salt in (None, "a", "b", "a"):
        rig.add(prompt(1, 9), cache_salt=salt)
    completions = await rig.run()
    assert [completion.usage.cached_tokens for completion in completions] == [0, 0, 0, 8]
    assert output_ids(completions) == [expected(prompt(1, 9), EIGHT)] * 4


async def test_sharing_changes_no_token() -> None:
    for share in (True, False):
        rig = Rig(runner=roomy(), config=EngineConfig(share_prefixes=share))
        prompts = [[*prompt(1, 13), i] for i in range(6)]
        for prompt_ids in prompts:
            rig.add(prompt_ids)
        completions = await rig.run()
        assert output_ids(completions) == [expected(prompt_ids, EIGHT) for prompt_ids in prompts]
        assert (rig.core.stats().cached_tokens > 0) == share


async def test_a_waiting_twin_runs_by_itself_when_the_first_is_aborted() -> None:
    rig = Rig(runner=roomy(max_tokens=4), config=EngineConfig(pipeline_depth=1))
    first = rig.add(prompt(1, 40))
    twin = rig.add(prompt(1, 40))
    await rig.step()
    assert twin.state.value == "waiting"
    rig.core.abort(first.id)
    await rig.step()
    assert twin.state.value == "running"
    await rig.run()
    assert twin.token_ids[40:] == expected(prompt(1, 40), EIGHT)


async def test_a_block_run_past_a_stop_is_never_found() -> None:
    """The step under way at the stop writes into the block; only committed tokens make it shareable."""
    ids = expected(prompt(3, 3), SamplingParams(max_tokens=8, ignore_eos=True))
    rig = Rig(config=EngineConfig(pipeline_depth=3))
    rig.add(prompt(3, 3), stop_token_ids=(ids[0],), ignore_eos=True)
    await rig.run()
    turn = [*prompt(3, 3), ids[0], 1]
    rig.add(turn)
    await rig.run()
    assert rig.requests[1].cached_tokens == 0
    assert rig.requests[1].token_ids[len(turn) :] == expected(turn, EIGHT)

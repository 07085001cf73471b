"""A pool too small for everybody: requests take turns, and nobody can tell from the tokens."""

from pageloom.engine.config import EngineConfig
from pageloom.engine.sampling_params import SamplingParams
from tests.fake_runner import FakeRunner, limits
from tests.unit.engine.rig import Rig, alone, expected, output_ids, prompt


def tiny_pool(num_blocks: int) -> FakeRunner:
    return FakeRunner(limits(num_blocks=num_blocks, max_blocks_per_sequence=num_blocks))


async def test_preempted_requests_give_the_tokens_of_unpreempted_ones() -> None:
    for depth in (1, 2, 3):
        rig = Rig(runner=tiny_pool(5), config=EngineConfig(pipeline_depth=depth))
        for i in range(4):
            rig.add(prompt(i, 3 + i), max_tokens=11, ignore_eos=True)
        completions = await rig.run()
        assert rig.core.stats().preemptions > 0
        wanted = SamplingParams(max_tokens=11, ignore_eos=True)
        assert output_ids(completions) == [expected(prompt(i, 3 + i), wanted) for i in range(4)]


async def test_a_preempted_request_keeps_its_random_state() -> None:
    rig = Rig(runner=tiny_pool(5))
    for i in range(4):
        rig.add(prompt(i, 3 + i), max_tokens=11, ignore_eos=True, temperature=1.3, seed=i, presence_penalty=0.5)
    completions = await rig.run()
    assert rig.core.stats().preemptions > 0
    for i, completion in enumerate(completions):
        single = await alone(
            prompt(i, 3 + i), max_tokens=11, ignore_eos=True, temperature=1.3, seed=i, presence_penalty=0.5
        )
        assert completion.output_ids == single.output_ids


async def test_the_most_recent_arrival_gives_way_and_the_earliest_never_does() -> None:
    rig = Rig(runner=tiny_pool(4), config=EngineConfig(pipeline_depth=1))
    for i in range(2):
        rig.add(prompt(i, 7), max_tokens=8, ignore_eos=True)
    states = []
    while rig.core.has_work:
        await rig.step()
        states.append(tuple(request.state.value for request in rig.requests))
    assert states[:3] == [("running", "running"), ("running", "running"), ("running", "preempted")]
    assert all(first != "preempted" for first, _ in states)
    order = [states.index(next(s for s in states if s[i] == "finished")) for i in range(2)]
    assert order == sorted(order)


async def test_two_prompts_of_most_of_the_pool_run_one_after_the_other() -> None:
    """Each takes 60 percent: the second is admitted as a whole or not at all, so nothing is computed twice."""
    rig = Rig(runner=FakeRunner(limits(num_blocks=10, max_tokens=4)))
    for i in range(2):
        rig.add(prompt(i, 21), max_tokens=3, ignore_eos=True)
    completions = await rig.run()
    stats = rig.core.stats()
    assert [completion.finish_reason for completion in completions] == ["length", "length"]
    assert stats.preemptions == 0
    assert stats.prefill_tokens + stats.decode_tokens == 2 * (21 + 2)


async def test_a_request_is_not_admitted_without_room_for_its_first_new_token() -> None:
    """The second prompt fits the two blocks that are left, but would have to give them up at once."""
    rig = Rig(runner=tiny_pool(4))
    rig.add(prompt(0, 7), max_tokens=2, ignore_eos=True)
    rig.add(prompt(1, 8), max_tokens=4, ignore_eos=True)
    await rig.run()
    assert rig.core.stats().preemptions == 0


async def test_recomputation_is_bounded_by_one_context_for_each_preemption() -> None:
    rig = Rig(runner=tiny_pool(6))
    for i in range(5):
        rig.add(prompt(i, 6), max_tokens=12, ignore_eos=True)
    await rig.run()
    stats = rig.core.stats()
    needed = 5 * (6 + 11)
    assert needed < stats.prefill_tokens + stats.decode_tokens <= needed + stats.preemptions * (6 + 11)


async def test_a_preempted_request_counts_its_cached_prompt_tokens_once() -> None:
    rig = Rig(runner=tiny_pool(5))
    for i in range(4):
        rig.add(prompt(i, 4), max_tokens=11, ignore_eos=True)
    completions = await rig.run()
    assert rig.core.stats().preemptions > 0
    assert [completion.usage.cached_tokens for completion in completions] == [0, 0, 0, 0]


async def test_a_large_request_that_waits_for_blocks_is_not_overtaken() -> None:
    rig = Rig(runner=tiny_pool(6), config=EngineConfig(pipeline_depth=1))
    rig.add(prompt(0, 11), max_tokens=6, ignore_eos=True)
    large = rig.add(prompt(1, 17), max_tokens=2, ignore_eos=True)
    small = rig.add(prompt(2, 2), max_tokens=2, ignore_eos=True)
    seen_running: list[str] = []
    while rig.core.has_work:
        await rig.step()
        seen_running += [v.id for v in rig.core.snapshot().running if v.id not in seen_running]
    assert seen_running.index(large.id) < seen_running.index(small.id)
    assert large.completion().finish_reason == small.completion().finish_reason == "length"

"""A step that fails takes its own requests with it and nothing else."""

import pytest

from pageloom.engine.config import EngineConfig
from pageloom.engine.events import FinishEvent
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import DeviceError, DeviceLost, InvalidArgument, OutOfMemory
from tests.fake_runner import FakeRunner, limits
from tests.unit.engine.rig import Rig, expected, letter, prompt

FAULTS = [OutOfMemory("no room"), InvalidArgument("bad batch"), DeviceError("shader"), RuntimeError("surprise")]
EIGHT = SamplingParams(max_tokens=8)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("where", ["refuse", "fail"])
@pytest.mark.parametrize("index", [0, 1, 3])
@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_the_requests_of_a_failed_step_end_with_its_error_and_the_next_is_served(
    fault: Exception, where: str, index: int, depth: int
) -> None:
    runner = FakeRunner(limits(), **{where: {index: fault}})  # type: ignore[arg-type]
    rig = Rig(runner=runner, config=EngineConfig(pipeline_depth=depth))
    for i in range(2):
        rig.add(prompt(i, 5), ignore_eos=True)
    await rig.run()
    for request in rig.requests:
        assert isinstance(request.error, DeviceError if isinstance(fault, RuntimeError) else type(fault))
        last = rig.events[request.id][-1]
        assert isinstance(last, FinishEvent)
        assert (last.reason, last.error) == ("error", request.error)
    later = rig.add(prompt(0, 5))
    await rig.run()
    assert later.token_ids[5:] == expected(prompt(0, 5), EIGHT)


async def test_a_request_that_was_not_in_the_failed_step_goes_on() -> None:
    rig = Rig(runner=FakeRunner(limits(max_sequences=2), fail={0: OutOfMemory("no room")}))
    for i in range(3):
        rig.add(prompt(i, 5))
    await rig.run()
    assert [request.error is None for request in rig.requests] == [False, False, True]
    assert rig.requests[2].token_ids[5:] == expected(prompt(2, 5), EIGHT)


async def test_nothing_of_a_failed_step_is_ever_shared() -> None:
    rig = Rig(runner=FakeRunner(limits(), fail={0: OutOfMemory("no room")}))
    rig.add(prompt(1, 13))
    twin = rig.add(prompt(1, 13))
    await rig.run()
    assert rig.requests[0].error is not None
    assert twin.cached_tokens == 0
    assert twin.token_ids[13:] == expected(prompt(1, 13), EIGHT)


@pytest.mark.parametrize("where", ["refuse", "fail"])
async def test_a_lost_device_ends_every_request_and_refuses_new_ones(where: str) -> None:
    runner = FakeRunner(limits(max_sequences=2), **{where: {2: DeviceLost("gone")}})  # type: ignore[arg-type]
    rig = Rig(runner=runner)
    for i in range(4):
        rig.add(prompt(i, 5), ignore_eos=True)
    await rig.run()
    assert all(isinstance(request.error, DeviceLost) for request in rig.requests)
    with pytest.raises(DeviceLost):
        rig.add(prompt(1, 3))


async def test_logits_that_are_no_numbers_end_their_request_alone() -> None:
    rig = Rig(config=EngineConfig(pipeline_depth=1))
    for i in range(2):
        rig.add(prompt(i, 5), ignore_eos=True)
    await rig.step()
    rig.runner.poison(rig.requests[0].table.block_ids)
    await rig.run()
    assert isinstance(rig.requests[0].error, DeviceError)
    assert rig.requests[1].token_ids[5:] == expected(prompt(1, 5), SamplingParams(max_tokens=8, ignore_eos=True))


async def test_a_runner_that_gives_too_few_rows_fails_the_step() -> None:
    class Forgetful(FakeRunner):
        async def result(self, ticket):  # type: ignore[no-untyped-def]
            return (await super().result(ticket))[1:]

    rig = Rig(runner=Forgetful(limits()))
    rig.add(prompt(1, 3))
    await rig.run()
    assert isinstance(rig.requests[0].error, DeviceError)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("state", ["waiting", "running", "preempted", "finished"])
async def test_an_abort_in_any_state_frees_the_request_at_once_and_only_it(depth: int, state: str) -> None:
    runner = FakeRunner(limits(num_blocks=5, max_blocks_per_sequence=5))
    rig = Rig(runner=runner, config=EngineConfig(pipeline_depth=depth))
    for i in range(4):
        rig.add(prompt(i, 3 + i), max_tokens=11, ignore_eos=True)
    while (victim := next((r for r in reversed(rig.requests) if r.state.value == state), None)) is None:
        await rig.step()
    assert rig.core.abort(victim.id) == (state != "finished")
    assert victim.is_finished
    rig.check()
    assert not rig.core.abort(victim.id)
    await rig.run()
    for i, request in enumerate(rig.requests):
        if request is not victim:
            wanted = SamplingParams(max_tokens=11, ignore_eos=True)
            assert request.token_ids[3 + i :] == expected(prompt(i, 3 + i), wanted)


async def test_an_abort_keeps_what_was_said_and_says_no_more() -> None:
    rig = Rig(config=EngineConfig(pipeline_depth=1))
    request = rig.add(prompt(1, 3), ignore_eos=True)
    for _ in range(3):
        await rig.step()
    rig.core.abort(request.id)
    said = len(rig.events[request.id])
    completion = (await rig.run())[0]
    assert (completion.finish_reason, len(completion.output_ids)) == ("abort", 3)
    assert completion.text == "".join(map(letter, completion.output_ids))
    assert len(rig.events[request.id]) == said == 4

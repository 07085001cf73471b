"""The engine on an event loop: streaming, stopping, closing."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pageloom.engine.batch import RowCandidates, StepTicket
from pageloom.engine.engine import Engine
from pageloom.engine.events import FinishEvent, TokenEvent
from pageloom.engine.invariants import validate_invariants
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import DeviceLost, InvalidArgument, OutOfMemory, PageloomError
from tests.fake_runner import FakeRunner, limits
from tests.unit.engine.rig import EOS, Letters, expected, letter, prompt

EIGHT = SamplingParams(max_tokens=8, ignore_eos=True)


def make_engine(runner: FakeRunner | None = None) -> Engine:
    return Engine(runner or FakeRunner(limits()), context_length=64, stop_ids=frozenset({EOS}), detokenizer=Letters)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = make_engine()
    yield engine
    await engine.close()


async def test_a_request_streams_its_tokens_and_then_how_it_ended(engine: Engine) -> None:
    handle = engine.submit(prompt(1, 5), EIGHT)
    events = [event async for event in handle]
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    assert [event.token_id for event in tokens] == expected(prompt(1, 5), EIGHT)
    assert "".join(event.text_delta for event in tokens) == (await handle.result()).text
    last = events[-1]
    assert isinstance(last, FinishEvent)
    assert (last.reason, last.usage.prompt_tokens, last.usage.completion_tokens) == ("length", 5, 8)


async def test_many_results_are_awaited_at_once(engine: Engine) -> None:
    handles = [engine.submit(prompt(i, 3 + i), EIGHT) for i in range(10)]
    completions = await asyncio.gather(*(handle.result() for handle in handles))
    assert [list(completion.output_ids) for completion in completions] == [
        expected(prompt(i, 3 + i), EIGHT) for i in range(10)
    ]
    assert len({completion.request_id for completion in completions}) == 10
    for timings in (completion.timings for completion in completions):
        assert 0 <= (timings.admitted or 0) < (timings.first_token or 0) <= timings.finished


async def test_a_finished_request_can_be_awaited_and_iterated_again(engine: Engine) -> None:
    handle = engine.submit(prompt(1, 5), EIGHT)
    assert await handle.result() == await handle.result()
    assert len([event async for event in handle]) == 9
    assert [event async for event in handle] == []


async def test_the_engine_goes_to_sleep_and_wakes_up(engine: Engine) -> None:
    for _ in range(2):
        completion = await engine.submit(prompt(1, 5), EIGHT).result()
        assert list(completion.output_ids) == expected(prompt(1, 5), EIGHT)
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_leaving_the_iteration_aborts_the_request_and_the_next_one_runs(engine: Engine) -> None:
    handle = engine.submit(prompt(1, 5), SamplingParams(max_tokens=50, ignore_eos=True))
    async for _ in handle:
        break
    completion = await handle.result()
    assert completion.finish_reason == "abort"
    assert engine.stats().used_blocks == 0
    following = await engine.submit(prompt(2, 5), EIGHT).result()
    assert list(following.output_ids) == expected(prompt(2, 5), EIGHT)


async def test_callers_get_their_turn_although_the_runner_never_makes_the_engine_wait() -> None:
    class AtOnce(FakeRunner):
        async def result(self, ticket: StepTicket) -> tuple[RowCandidates, ...]:
            return self.take(ticket)

    engine = make_engine(AtOnce(limits()))
    handle = engine.submit(prompt(1, 5), SamplingParams(max_tokens=50, ignore_eos=True))
    events = aiter(handle)
    await anext(events)
    assert handle.abort()
    assert (await handle.result()).usage.completion_tokens < 5
    await engine.close()


async def test_an_abort_before_the_first_token_ends_the_request_without_tokens(engine: Engine) -> None:
    handle = engine.submit(prompt(1, 5), EIGHT)
    assert handle.abort()
    assert not handle.abort()
    assert not engine.abort(handle.id)
    completion = await handle.result()
    assert (completion.output_ids, completion.text, completion.finish_reason) == ((), "", "abort")
    assert [type(event) for event in [event async for event in handle]] == [FinishEvent]


async def test_after_an_abort_the_next_request_is_in_the_next_step() -> None:
    runner = FakeRunner(limits(max_sequences=1))
    engine = make_engine(runner)
    blocker = engine.submit(prompt(1, 5), SamplingParams(max_tokens=50, ignore_eos=True))
    waiting = engine.submit(prompt(2, 6), SamplingParams(max_tokens=1))
    events = aiter(blocker)
    await anext(events)
    engine.abort(blocker.id)
    submitted = len(runner.batches)
    await waiting.result()
    assert len(runner.batches[submitted].input_ids) == 6
    await engine.close()


async def test_an_old_handle_does_not_abort_a_new_request_of_its_id(engine: Engine) -> None:
    first = engine.submit(prompt(1, 5), SamplingParams(max_tokens=1), request_id="same")
    await first.result()
    second = engine.submit(prompt(1, 5), EIGHT, request_id="same")
    assert not first.abort()
    assert (await second.result()).finish_reason == "length"


async def test_a_failed_request_raises_its_error_and_the_next_one_runs() -> None:
    engine = make_engine(FakeRunner(limits(), fail={1: OutOfMemory("no room")}))
    handle = engine.submit(prompt(1, 5), EIGHT)
    with pytest.raises(OutOfMemory, match="no room"):
        await handle.result()
    events = [event async for event in handle]
    assert isinstance(events[-1], FinishEvent)
    assert isinstance(events[-1].error, OutOfMemory)
    assert list((await engine.submit(prompt(1, 5), EIGHT).result()).output_ids) == expected(prompt(1, 5), EIGHT)
    await engine.close()


async def test_a_lost_device_ends_everything_with_one_typed_error() -> None:
    engine = make_engine(FakeRunner(limits(max_sequences=2), fail={2: DeviceLost("gone")}))
    handles = [engine.submit(prompt(i, 5), EIGHT) for i in range(4)]
    results = await asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True)
    assert all(isinstance(result, DeviceLost) for result in results)
    with pytest.raises(DeviceLost):
        engine.submit(prompt(1, 5))
    await engine.close()


async def test_a_fault_of_the_engine_itself_ends_every_request_instead_of_hanging() -> None:
    class Broken(Letters):
        def feed(self, token_id: int) -> str:
            raise KeyError(token_id)

    engine = Engine(FakeRunner(limits()), context_length=64, stop_ids=frozenset(), detokenizer=Broken)
    handle = engine.submit(prompt(1, 5), EIGHT)
    with pytest.raises(PageloomError, match="KeyError"):
        await handle.result()
    await engine.close()


async def test_closing_aborts_what_runs_and_waits_and_closes_the_runner() -> None:
    runner = FakeRunner(limits(max_sequences=1))
    engine = make_engine(runner)
    handles = [engine.submit(prompt(i, 5), EIGHT) for i in range(3)]
    events = aiter(handles[0])
    await anext(events)
    await engine.close()
    await engine.close()
    assert [(await handle.result()).finish_reason for handle in handles] == ["abort"] * 3
    assert runner.closed
    assert engine.stats().used_blocks == 0
    with pytest.raises(InvalidArgument, match="closed"):
        engine.submit(prompt(1, 5))


def test_an_event_loop_that_ends_while_requests_run_ends_the_engine_with_a_typed_error() -> None:
    runner = FakeRunner(limits())
    engine = make_engine(runner)

    async def leave() -> None:
        await anext(aiter(engine.submit(prompt(1, 5), SamplingParams(max_tokens=50, ignore_eos=True))))

    async def come_back() -> None:
        with pytest.raises(PageloomError, match="the event loop ended"):
            engine.submit(prompt(1, 5), EIGHT)
        await engine.close()

    asyncio.run(leave())
    asyncio.run(come_back())
    assert runner.closed
    assert engine.stats().used_blocks == 0


def test_an_idle_engine_moves_to_another_event_loop_and_a_busy_one_says_that_it_cannot() -> None:
    engine = make_engine()

    async def use() -> list[int]:
        return list((await engine.submit(prompt(1, 5), EIGHT).result()).output_ids)

    async def use_from_another_loop() -> None:
        engine.submit(prompt(1, 5), EIGHT)
        with ThreadPoolExecutor() as threads, pytest.raises(InvalidArgument, match="another event loop"):
            threads.submit(asyncio.run, use()).result()  # this loop stands still meanwhile: its request cannot end
        await engine.close()

    assert asyncio.run(use()) == asyncio.run(use()) == expected(prompt(1, 5), EIGHT)
    asyncio.run(use_from_another_loop())


async def test_statistics_and_snapshot_tell_what_was_done(engine: Engine) -> None:
    await asyncio.gather(*(engine.submit(prompt(i, 6), EIGHT).result() for i in range(3)))
    stats = engine.stats()
    assert (stats.prefill_tokens, stats.decode_tokens, stats.output_tokens) == (18, 3 * 7, 24)
    assert stats.tokens_per_second == pytest.approx(24 / stats.busy_seconds)
    assert (stats.num_blocks, stats.used_blocks, stats.preemptions) == (32, 0, 0)
    snapshot = engine.snapshot()
    assert validate_invariants(snapshot) == []
    assert stats.steps == len(snapshot.steps)
    assert sum(step.prefill_tokens + step.decode_tokens for step in snapshot.steps) == 18 + 21
    assert sum(step.milliseconds for step in snapshot.steps) == pytest.approx(1000 * stats.busy_seconds)


def test_letters_are_all_different() -> None:
    assert len({letter(token_id) for token_id in range(32)}) == 32

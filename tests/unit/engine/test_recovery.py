"""A device that is lost is replaced, and every request ends as if it had not been."""

import asyncio
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest

from pageloom.engine.config import EngineConfig
from pageloom.engine.engine import Engine
from pageloom.engine.recovery import Recovery, RecoveryEvent
from pageloom.engine.runner_settings import RunnerSettings, runner_limits, settings_of
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import DeviceLost, OutOfMemory
from pageloom.model.decoder import load_model_description
from pageloom.model.source import FileSource
from tests.fake_runner import FakeRunner, limits
from tests.tiny_model import write_tiny_model
from tests.unit.engine.rig import EOS, Letters, expected, prompt

GONE = DeviceLost("the driver was reset")
GREEDY = SamplingParams(max_tokens=12, ignore_eos=True)
SEEDED = [SamplingParams(max_tokens=12, temperature=1.0, seed=seed, ignore_eos=True) for seed in range(4)]


class Machine:
    """Runners as a machine has them: each one that is made takes the place of the one before."""

    def __init__(self, *runners: FakeRunner | Exception, depth: int = 2) -> None:
        first, *self.spares = runners
        assert isinstance(first, FakeRunner)
        self.told: list[RecoveryEvent] = []
        self.engine = Engine(
            first,
            context_length=64,
            stop_ids=frozenset({EOS}),
            detokenizer=Letters,
            config=EngineConfig(pipeline_depth=depth),
            recovery=Recovery(self._replace, self.told.append),
        )

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.told]

    async def _replace(self) -> FakeRunner:
        await asyncio.sleep(0)
        spare = self.spares.pop(0)
        if isinstance(spare, Exception):
            raise spare
        return spare

    async def run(self, params: Sequence[SamplingParams]) -> list[list[int]]:
        handles = [self.engine.submit(prompt(index, 5 + index), one) for index, one in enumerate(params)]
        return [list((await handle.result()).output_ids) for handle in handles]


@pytest.mark.parametrize("where", ["refuse", "fail"])
@pytest.mark.parametrize("index", [0, 1, 3, 9])
@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_every_request_has_the_tokens_that_it_would_have_had(where: str, index: int, depth: int) -> None:
    params = [*[GREEDY] * 4, *SEEDED]
    undisturbed = await Machine(FakeRunner(limits(max_sequences=8))).run(params)
    lost = FakeRunner(limits(max_sequences=8), **{where: {index: GONE}})  # type: ignore[arg-type]
    machine = Machine(lost, FakeRunner(limits(max_sequences=8)), depth=depth)
    assert await machine.run(params) == undisturbed
    assert undisturbed[0] == expected(prompt(0, 5), GREEDY)
    assert machine.states == ["lost", "recovered"]
    assert machine.told[0].requests == 8
    assert lost.closed


async def test_nothing_is_read_from_pages_of_the_lost_device() -> None:
    machine = Machine(FakeRunner(limits()), FakeRunner(limits()))
    before = await machine.run([GREEDY])
    machine.engine.lose(GONE)  # its first pages are cached, and the other device has none of them
    assert await machine.run([GREEDY]) == before
    assert machine.engine.stats().cached_tokens == 0


async def test_a_device_that_is_lost_while_nothing_runs_is_replaced_at_once() -> None:
    spare = FakeRunner(limits())
    machine = Machine(FakeRunner(limits()), spare)
    machine.engine.lose(GONE)
    while machine.states != ["lost", "recovered"]:
        await asyncio.sleep(0)
    assert machine.engine.runner is spare


async def test_a_second_loss_within_seconds_ends_all_with_words_that_help() -> None:
    machine = Machine(FakeRunner(limits(), fail={1: GONE}), FakeRunner(limits(), fail={1: GONE}), FakeRunner(limits()))
    with pytest.raises(DeviceLost, match=r"lost again .* fewer sequences"):
        await machine.run([GREEDY, GREEDY])
    assert machine.states == ["lost", "recovered", "lost", "gone"]
    with pytest.raises(DeviceLost, match="lost again"):
        machine.engine.submit([1, 2, 3])
    await machine.engine.close()


@pytest.mark.parametrize(
    ("spare", "words"), [(OutOfMemory("no room"), "no room"), (FakeRunner(limits(num_blocks=8)), "offers less")]
)
async def test_where_no_device_can_take_its_place_all_ends_with_the_reason(spare: object, words: str) -> None:
    machine = Machine(FakeRunner(limits(), fail={1: GONE}), spare)  # type: ignore[arg-type]
    with pytest.raises(DeviceLost, match=words):
        await machine.run([GREEDY])
    assert machine.told[-1].error is not None


async def test_a_request_that_is_stopped_meanwhile_stays_stopped_and_others_go_on() -> None:
    machine = Machine(FakeRunner(limits(), fail={2: GONE}), FakeRunner(limits()))
    handles = [machine.engine.submit(prompt(index, 5), GREEDY) for index in range(2)]
    while not machine.told:
        await asyncio.sleep(0)
    handles[0].abort()
    assert (await handles[0].result()).finish_reason == "abort"
    assert list((await handles[1].result()).output_ids) == expected(prompt(1, 5), GREEDY)


async def test_an_engine_closed_during_a_recovery_closes_the_new_device_too() -> None:
    spare = FakeRunner(limits())
    machine = Machine(FakeRunner(limits()), spare)
    machine.engine.lose(GONE)
    await machine.engine.close()
    assert spare.closed


@pytest.mark.parametrize("context_length", [None, 40])
async def test_the_settings_of_limits_make_the_same_limits(context_length: int | None, tmp_path: Path) -> None:
    decoder = (await load_model_description(FileSource(write_tiny_model(tmp_path / "tiny.gguf")))).decoder
    chosen = RunnerSettings(context_length=context_length, kv_memory=10**6)
    made = runner_limits(chosen, decoder, num_blocks=11, default_max_tokens=64, default_max_sequences=8)
    again = settings_of(made, chosen)
    assert again.num_blocks == 11
    assert runner_limits(again, decoder, num_blocks=11, default_max_tokens=1, default_max_sequences=1) == made


async def test_an_engine_that_has_ended_replaces_no_device() -> None:
    machine = Machine(FakeRunner(limits()), OutOfMemory("no room"), FakeRunner(limits()))
    machine.engine.lose(GONE)
    while "gone" not in machine.states:
        await asyncio.sleep(0)
    told = list(machine.states)
    machine.engine.lose(GONE)
    await asyncio.sleep(0.01)
    assert machine.states == told
    assert machine.engine.failure is not None
    frames = set()
    for _ in range(3):
        with pytest.raises(DeviceLost) as refused:
            machine.engine.submit(prompt(0, 5), GREEDY)
        frames.add(len(traceback.extract_tb(refused.value.__traceback__)))
    assert len(frames) == 1

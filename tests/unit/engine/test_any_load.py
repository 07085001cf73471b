"""Under any arrivals, aborts, pools and faults: the books balance after every step, and every request ends rightly."""

import asyncio
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from pageloom.engine.config import EngineConfig
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import CapacityExceeded, DeviceError
from tests.fake_runner import FakeRunner, limits
from tests.unit.engine.labels import LABELS, check_labels
from tests.unit.engine.rig import Rig, expected, prompt


@dataclass(frozen=True)
class Arrival:
    """A request or a classification, the steps before it arrives, and the steps after which it is aborted."""

    family: int
    length: int
    max_tokens: int
    temperature: float
    classifies: bool
    delay: int
    abort_after: int | None


@dataclass(frozen=True)
class Load:
    num_blocks: int
    max_sequences: int
    budget: int
    depth: int
    faults: frozenset[int]
    arrivals: tuple[Arrival, ...]


arrivals = st.builds(
    Arrival,
    family=st.integers(0, 2),
    length=st.integers(1, 26),
    max_tokens=st.integers(1, 12),
    temperature=st.sampled_from([0.0, 0.0, 0.0, 1.0]),
    classifies=st.sampled_from([False, False, True]),
    delay=st.integers(0, 3),
    abort_after=st.one_of(st.none(), st.none(), st.integers(0, 8)),
)
loads = st.builds(
    Load,
    num_blocks=st.integers(2, 9),
    max_sequences=st.integers(1, 5),
    budget=st.integers(1, 20),
    depth=st.integers(1, 4),
    faults=st.one_of(st.just(frozenset()), st.frozensets(st.integers(0, 40), max_size=3)),
    arrivals=st.lists(arrivals, min_size=4, max_size=9).map(tuple),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(loads)
def test_every_request_ends_and_what_it_says_is_right(load: Load) -> None:
    asyncio.run(run(load))


async def run(load: Load) -> None:
    faults = sorted(load.faults)
    runner = FakeRunner(
        limits(num_blocks=load.num_blocks, max_sequences=load.max_sequences, max_tokens=load.budget),
        refuse={index: DeviceError("refused") for index in faults[::2]},
        fail={index: DeviceError("failed") for index in faults[1::2]},
    )
    rig = Rig(runner=runner, config=EngineConfig(pipeline_depth=load.depth))
    queue = list(load.arrivals)
    aborts: dict[str, int] = {}
    live: dict[str, Arrival] = {}
    steps = 0
    while queue or rig.core.has_work:
        if queue and (queue[0].delay <= 0 or not rig.core.has_work):
            arrive(rig, queue.pop(0), live, aborts, steps)
        elif queue:
            queue[0] = Arrival(**{**vars(queue[0]), "delay": queue[0].delay - 1})
        for request_id, at in list(aborts.items()):
            if steps >= at:
                rig.core.abort(request_id)
                rig.check()
                del aborts[request_id]
        if rig.core.has_work:
            await rig.step()
        steps += 1
        assert steps < 3000
    assert rig.core.stats().used_blocks == 0
    for request in rig.requests:
        check(rig, request.id, live[request.id], load)


def arrive(rig: Rig, arrival: Arrival, live: dict[str, Arrival], aborts: dict[str, int], steps: int) -> None:
    try:
        request = rig.add(
            prompt(arrival.family, arrival.length),
            max_tokens=arrival.max_tokens,
            temperature=arrival.temperature,
            seed=arrival.length,
            labels=LABELS if arrival.classifies else (),
        )
    except CapacityExceeded:
        longest = max(len(label.token_ids) for label in LABELS) if arrival.classifies else 0
        assert arrival.length + longest > rig.runner.limits.num_blocks * rig.runner.limits.block_size
        return
    live[request.id] = arrival
    if arrival.abort_after is not None:
        aborts[request.id] = steps + arrival.abort_after


def check(rig: Rig, request_id: str, arrival: Arrival, load: Load) -> None:
    request = next(request for request in rig.requests if request.id == request_id)
    completion = request.completion()
    output = list(completion.output_ids)
    if arrival.classifies:
        assert completion.finish_reason in ("stop", "abort", "error")
        if completion.finish_reason == "stop":
            check_labels(prompt(arrival.family, arrival.length), completion, greedy=arrival.temperature == 0.0)
        return
    room = load.num_blocks * rig.runner.limits.block_size + 1 - arrival.length
    wanted_length = min(arrival.max_tokens, room)
    if completion.finish_reason == "error":
        assert request.error in (*rig.runner.refuse.values(), *rig.runner.fail.values())
    elif completion.finish_reason == "abort":
        assert arrival.abort_after is not None
    elif completion.finish_reason == "length":
        assert len(output) == wanted_length
    if arrival.temperature == 0.0:
        whole = expected(prompt(arrival.family, arrival.length), SamplingParams(max_tokens=wanted_length))
        assert output == whole[: len(output)]
        assert completion.finish_reason in ("abort", "error") or output == whole
    assert len(rig.events[request_id]) == len(output) + 1

"""Drives an EngineCore one step at a time over the fake Runner, and looks at its books after every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pageloom.engine.classification import Label
from pageloom.engine.config import EngineConfig
from pageloom.engine.constraint import Constraint
from pageloom.engine.core import EngineCore
from pageloom.engine.events import Completion, Event
from pageloom.engine.invariants import validate_invariants
from pageloom.engine.request import Request
from pageloom.engine.sampling_params import SamplingParams
from tests.fake_runner import FakeRunner, greedy, limits

EOS = 31


class Letters:
    """Token i is the i-th letter; there are no characters of several tokens."""

    def feed(self, token_id: int) -> str:
        return letter(token_id)

    def finish(self) -> str:
        return ""


def letter(token_id: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"[token_id]


def prompt(seed: int, length: int) -> list[int]:
    """A prompt of tokens that are never EOS."""
    return [(7 * seed + 3 * position + position * position * (seed + 1)) % EOS for position in range(length)]


def expected(prompt_ids: Sequence[int], params: SamplingParams) -> list[int]:
    """What a greedy request without adjustments has to give: up to and with EOS, or `max_tokens`."""
    assert params.max_tokens is not None
    tokens = greedy(prompt_ids, params.max_tokens)
    return tokens if params.ignore_eos or EOS not in tokens else tokens[: tokens.index(EOS) + 1]


@dataclass
class Rig:
    runner: FakeRunner = field(default_factory=lambda: FakeRunner(limits()))
    config: EngineConfig = field(default_factory=EngineConfig)
    context_length: int = 64
    recovers: bool = False
    events: dict[str, list[Event]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.core = EngineCore(
            self.runner,
            context_length=self.context_length,
            stop_ids=frozenset({EOS}),
            detokenizer=Letters,
            config=self.config,
            recovers=self.recovers,
        )

    def add(
        self,
        prompt_ids: Sequence[int],
        cache_salt: str | None = None,
        constraint: Constraint | None = None,
        labels: Sequence[Label] = (),
        **params: object,
    ) -> Request:
        """Queue a request; 8 greedy tokens unless `params` say otherwise."""
        events: list[Event] = []
        sampling = SamplingParams(**{"max_tokens": 8, **params})  # type: ignore[arg-type]
        request = self.core.add(
            prompt_ids, sampling, events.append, constraint=constraint, labels=labels, cache_salt=cache_salt
        )
        self.events[request.id] = events
        self.requests.append(request)
        return request

    async def step(self) -> None:
        await self.core.step()
        self.check()

    async def run(self) -> list[Completion]:
        """Run to the end; the completions in the order of arrival."""
        steps = 0
        while self.core.has_work:
            await self.step()
            steps += 1
            assert steps < 10_000, "the engine does not come to an end"
        assert self.core.stats().used_blocks == 0
        return [request.completion() for request in self.requests]

    def check(self) -> None:
        """The invariants hold; then poison every block that nobody owns and nobody can find."""
        snapshot = self.core.snapshot()
        assert validate_invariants(snapshot) == []
        self.runner.poison(block for block in snapshot.reuse_order if not snapshot.blocks[block].cached)


def output_ids(completions: Sequence[Completion]) -> list[list[int]]:
    return [list(completion.output_ids) for completion in completions]


async def alone(prompt_ids: Sequence[int], **params: object) -> Completion:
    """The request on an engine of its own."""
    rig = Rig()
    rig.add(prompt_ids, **params)
    return (await rig.run())[0]

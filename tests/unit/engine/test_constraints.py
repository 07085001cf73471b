"""An answer keeps its constraint whatever runs beside it, and nobody else notices."""

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from pageloom.engine.batch import RowCandidates
from pageloom.engine.config import EngineConfig
from pageloom.engine.sampler import sample
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import NotSupported
from tests.fake_runner import FakeRunner, limits, logits_of, states_of
from tests.unit.engine.rig import EOS, Rig, alone, expected, output_ids, prompt


class Steps:
    """Each token is at most `width` above the one before, counted around the vocabulary; `length` tokens are whole.

    EOS may come from the third token on.
    """

    def __init__(self, width: int = 5, length: int = 100) -> None:
        self.width = width
        self.left = length
        self.last = 0

    def tokens(self) -> set[int]:
        return {(self.last + step) % EOS for step in range(1, self.width + 1)}

    def allowed(self) -> bytes:
        if not self.width:
            raise NotSupported("nothing fits")
        return sum(1 << token for token in self.tokens()).to_bytes(4, "little")

    def advance(self, token_id: int) -> None:
        assert token_id in self.tokens()
        self.last = token_id
        self.left -= 1

    @property
    def is_complete(self) -> bool:
        return not self.left


def greedy_steps(prompt_ids: list[int], num_tokens: int, width: int = 5) -> list[int]:
    token_ids, rule = list(prompt_ids), Steps(width)
    for _ in range(num_tokens):
        logits = logits_of(states_of(token_ids)[-1])
        token_ids.append(min(rule.tokens(), key=lambda token: (-logits[token], token)))
        rule.advance(token_ids[-1])
    return token_ids[len(prompt_ids) :]


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_a_greedy_answer_is_the_best_allowed_token_at_each_place(depth: int) -> None:
    rig = Rig(config=EngineConfig(pipeline_depth=depth))
    for i in range(6):
        rig.add(prompt(i, 3 + 2 * i), constraint=Steps() if i % 2 else None, ignore_eos=True)
    completions = await rig.run()
    free = SamplingParams(max_tokens=8, ignore_eos=True)
    wanted = [
        greedy_steps(prompt(i, 3 + 2 * i), 8) if i % 2 else expected(prompt(i, 3 + 2 * i), free) for i in range(6)
    ]
    assert output_ids(completions) == wanted


async def test_a_seeded_constrained_answer_is_the_same_alone_in_a_batch_and_preempted() -> None:
    sampling: dict[str, Any] = {"temperature": 1.2, "seed": 5, "max_tokens": 11, "ignore_eos": True}
    single = await alone(prompt(3, 6), constraint=Steps(), **sampling)
    rig = Rig(runner=FakeRunner(limits(num_blocks=5, max_blocks_per_sequence=5)))
    rig.add(prompt(1, 5), max_tokens=11, ignore_eos=True)
    rig.add(prompt(2, 4), max_tokens=11, temperature=1.0, ignore_eos=True)
    rig.add(prompt(3, 6), constraint=Steps(), **sampling)
    completions = await rig.run()
    assert rig.core.stats().preemptions > 0
    assert completions[2].output_ids == single.output_ids


async def test_a_whole_answer_ends_without_a_stop_token() -> None:
    for max_tokens in (4, 8):
        completion = await alone(prompt(1, 5), constraint=Steps(length=4), max_tokens=max_tokens)
        assert list(completion.output_ids) == greedy_steps(prompt(1, 5), 4)
        assert (completion.finish_reason, completion.stop_reason) == ("stop", None)
    cut = await alone(prompt(1, 5), constraint=Steps(length=4), max_tokens=3)
    assert cut.finish_reason == "length"


async def test_logprobs_are_among_the_allowed_tokens() -> None:
    completion = await alone(prompt(1, 5), constraint=Steps(width=3), max_tokens=1, logprobs=5)
    logits = np.array(logits_of(states_of(prompt(1, 5))[-1]))[[1, 2, 3]]
    wanted = np.sort(logits - np.logaddexp.reduce(logits))[::-1]
    np.testing.assert_allclose([entry.logprob for entry in completion.top_logprobs[0]], wanted, rtol=1e-12)


async def test_where_no_token_can_go_on_the_request_ends_with_the_error() -> None:
    class DeadEnd(Steps):
        def advance(self, token_id: int) -> None:
            self.width = 0

    rig = Rig()
    request = rig.add(prompt(1, 5), constraint=DeadEnd())
    rig.add(prompt(2, 5))
    with pytest.raises(NotSupported):
        rig.add(prompt(3, 5), constraint=Steps(width=0))
    _, other = await rig.run()
    assert isinstance(request.error, NotSupported)
    assert list(other.output_ids) == expected(prompt(2, 5), SamplingParams(max_tokens=8))


async def test_only_steps_with_a_constrained_row_have_masks() -> None:
    rig = Rig()
    rig.add(prompt(1, 5), max_tokens=8, ignore_eos=True)
    rig.add(prompt(2, 5), max_tokens=2, constraint=Steps())
    await rig.run()
    masked = [len(batch.masks) for batch in rig.runner.batches]
    assert masked[:2] == [1, 1]
    assert not any(masked[2:])


def test_a_token_that_is_not_allowed_is_never_drawn() -> None:
    row = RowCandidates((4, 7, 1, 2), (1.0, 0.5, -math.inf, -math.inf), 1.47)
    rng = random.Random(1)
    counts = Counter(sample(SamplingParams(temperature=2.0), row, rng).token_id for _ in range(2000))
    assert counts.keys() == {4, 7}
    assert len(sample(SamplingParams(logprobs=4), row, rng).top_logprobs) == 2

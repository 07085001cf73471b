"""Sampling against numpy in float64, and against long-run frequencies."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from pageloom.engine.batch import RowCandidates
from pageloom.engine.sampler import logit_adjustments, probabilities, sample
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import DeviceError
from tests.fake_runner import VOCAB_SIZE, FakeRunner, limits, logits_of, states_of
from tests.unit.engine.rig import Rig, alone, output_ids, prompt

LOGITS = (5.0, 4.5, 4.5, 3.0, 1.0, -2.0, -300.0, -4e38)
TOKENS = (11, 3, 7, 0, 20, 5, 6, 9)


def row() -> RowCandidates:
    return RowCandidates(TOKENS, LOGITS, float(np.logaddexp.reduce(np.array(LOGITS))))


def oracle(temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> np.ndarray:
    """Normalised probabilities, each filter a mask over all candidates."""
    scaled = np.array(LOGITS) / temperature
    p = np.exp(scaled - scaled.max())
    if top_k:
        p[top_k:] = 0
    before = (np.cumsum(p) - p) / p.sum()
    p[before >= top_p] = 0
    p[p < min_p * p.max()] = 0
    return p / p.sum()


@pytest.mark.parametrize(
    "filters",
    [
        {"temperature": 1.0},
        {"temperature": 0.3},
        {"temperature": 2.0, "top_k": 3},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 0.5},
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 1.7, "top_p": 0.9, "min_p": 0.2},
        {"temperature": 1.0, "min_p": 0.6},
        {"temperature": 1.0, "min_p": 1.0},
        {"temperature": 1.5, "top_k": 5, "top_p": 0.7, "min_p": 0.05},
        {"temperature": 1e-200},
    ],
)
def test_filters_keep_the_distribution_of_the_definition(filters: dict[str, Any]) -> None:
    weights = np.array(probabilities(SamplingParams(**filters), LOGITS))
    wanted = oracle(**filters)
    actual = np.zeros(len(LOGITS))
    actual[: len(weights)] = weights / weights.sum()
    np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-15)


def test_tokens_come_as_often_as_they_are_probable() -> None:
    params = SamplingParams(temperature=1.3, top_k=4)
    rng = random.Random(5)
    draws = 20_000
    counts = Counter(sample(params, row(), rng).token_id for _ in range(draws))
    p = oracle(1.3, top_k=4)
    for token_id, probability in zip(TOKENS, p, strict=True):
        spread = 4 * np.sqrt(draws * probability * (1 - probability))
        assert abs(counts[token_id] - draws * probability) <= spread


def test_greedy_takes_the_first_candidate_and_no_random_number() -> None:
    rng = random.Random(1)
    state = rng.getstate()
    assert sample(SamplingParams(), row(), rng).token_id == 11
    assert rng.getstate() == state


def test_logprobs_are_of_the_whole_row_at_temperature_1() -> None:
    sampled = sample(SamplingParams(logprobs=3, temperature=0.1, seed=1), row(), random.Random(1))
    wanted = np.array(LOGITS) - np.log(np.exp(np.array(LOGITS)).sum())
    assert [entry.token_id for entry in sampled.top_logprobs] == [11, 3, 7]
    np.testing.assert_allclose([entry.logprob for entry in sampled.top_logprobs], wanted[:3], rtol=1e-12)
    assert sampled.logprob == pytest.approx(wanted[TOKENS.index(sampled.token_id)], rel=1e-12)


def test_no_alternatives_still_give_the_chosen_tokens_logprob() -> None:
    sampled = sample(SamplingParams(logprobs=0), row(), random.Random(1))
    assert sampled.top_logprobs == ()
    assert sampled.logprob is not None


@pytest.mark.parametrize("logit", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_no_numbers_are_an_error_and_no_token(logit: float) -> None:
    with pytest.raises(DeviceError):
        sample(SamplingParams(), RowCandidates((0,), (logit,), 1.0), random.Random(1))


def test_penalties_and_bias_are_changes_of_single_logits() -> None:
    params = SamplingParams(
        repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25, logit_bias={2: 3.0, 9: -100.0}
    )
    entries = logit_adjustments(params, frozenset({1, 2}), {2: 3, 4: 1})
    assert [(entry.token_id, entry.divisor, entry.bias) for entry in entries] == [
        (1, 1.5, 0.0),
        (2, 1.5, 3.0 - 0.5 - 0.75),
        (4, 1.5, -0.5 - 0.25),
        (9, 1.0, -100.0),
    ]
    assert logit_adjustments(SamplingParams(), frozenset({1}), {2: 3}) == ()


def penalised(prompt_ids: list[int], num_tokens: int, params: SamplingParams) -> list[int]:
    """Greedy decoding with penalties on the whole row of logits, in numpy."""
    token_ids = list(prompt_ids)
    for _ in range(num_tokens):
        logits = np.array(logits_of(states_of(token_ids)[-1]))
        output = np.bincount(token_ids[len(prompt_ids) :], minlength=VOCAB_SIZE)
        seen = np.bincount(token_ids, minlength=VOCAB_SIZE) > 0
        factor = np.where(logits > 0, 1 / params.repetition_penalty, params.repetition_penalty)
        logits = np.where(seen, logits * factor, logits)
        logits -= params.presence_penalty * (output > 0) + params.frequency_penalty * output
        for token_id, bias in params.logit_bias.items():
            logits[token_id] += bias
        token_ids.append(int(logits.argmax()))
    return token_ids[len(prompt_ids) :]


@pytest.mark.parametrize(
    "changes",
    [
        {"repetition_penalty": 1.7},
        {"presence_penalty": 2.0, "frequency_penalty": 0.5},
        {"frequency_penalty": -2.0},
        {"logit_bias": {4: 100.0}},
        {"repetition_penalty": 2.0, "presence_penalty": -1.0, "logit_bias": {3: 5.0, 8: -50.0}},
    ],
)
async def test_penalties_act_before_candidates_are_chosen(changes: dict[str, Any]) -> None:
    completion = await alone(prompt(4, 6), max_tokens=12, ignore_eos=True, **changes)
    wanted = penalised(prompt(4, 6), 12, SamplingParams(**changes))
    assert list(completion.output_ids) == wanted


async def test_penalised_requests_share_the_steps_adjustments_in_turn() -> None:
    """Two rows need more changes of logits than a step has: they take turns, and both give their tokens."""
    rig = Rig(runner=FakeRunner(limits(max_adjustments=24)))
    for i in range(3):
        rig.add(prompt(i, 9), max_tokens=8, ignore_eos=True, repetition_penalty=1.4)
    completions = await rig.run()
    wanted = [penalised(prompt(i, 9), 8, SamplingParams(repetition_penalty=1.4)) for i in range(3)]
    assert output_ids(completions) == wanted
    assert max(len(batch.logits_rows) for batch in rig.runner.batches) < 3


async def test_a_seeded_request_is_the_same_alone_and_among_others() -> None:
    sampling: dict[str, Any] = {"temperature": 1.0, "seed": 7, "max_tokens": 10, "ignore_eos": True, "top_p": 0.95}
    rig = Rig()
    rig.add(prompt(1, 5), logprobs=8, max_tokens=12)
    rig.add(prompt(2, 6), temperature=1.9, seed=1)
    rig.add(prompt(3, 7), top_k=3, **sampling)
    completions = await rig.run()
    single = await alone(prompt(3, 7), top_k=3, **sampling)
    assert completions[2].output_ids == single.output_ids
    other_seed = await alone(prompt(3, 7), top_k=3, **{**sampling, "seed": 8})
    assert other_seed.output_ids != single.output_ids


async def test_requests_without_a_seed_differ() -> None:
    rig = Rig()
    for _ in range(4):
        rig.add(prompt(1, 5), temperature=2.0, max_tokens=10, ignore_eos=True)
    assert len({completion.output_ids for completion in await rig.run()}) > 1

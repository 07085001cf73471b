"""Choosing tokens on the host, from the candidates that the device found."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Set
from dataclasses import dataclass

from pageloom.engine.batch import RowCandidates
from pageloom.engine.events import TokenLogprob
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import DeviceError


@dataclass(frozen=True, slots=True)
class TokenAdjustment:
    """A `LogitAdjustment` before its request has a row."""

    token_id: int
    divisor: float
    bias: float


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token; `logprob` and `top_logprobs` as `TokenEvent` has them."""

    token_id: int
    logprob: float | None
    top_logprobs: tuple[TokenLogprob, ...]


def num_candidates(params: SamplingParams, max_candidates: int) -> int:
    """How many candidates a request needs. A batch may bring more, which changes nothing."""
    choice = 1 if params.is_greedy else min(params.top_k or max_candidates, max_candidates)
    return max(choice, params.logprobs or 0)


def logit_adjustments(
    params: SamplingParams, prompt_tokens: Set[int], output_counts: Mapping[int, int]
) -> tuple[TokenAdjustment, ...]:
    """Penalties and logit bias as changes of single logits: the repetition penalty first, then what is added."""
    if not params.logit_bias and not params.has_penalties:
        return ()
    token_ids = set(params.logit_bias)
    if params.has_penalties:
        token_ids |= output_counts.keys()
    if params.repetition_penalty != 1.0:
        token_ids |= prompt_tokens
    return tuple(
        TokenAdjustment(
            token_id,
            divisor=params.repetition_penalty if token_id in prompt_tokens or token_id in output_counts else 1.0,
            bias=params.logit_bias.get(token_id, 0.0)
            - params.presence_penalty * (token_id in output_counts)
            - params.frequency_penalty * output_counts.get(token_id, 0),
        )
        for token_id in sorted(token_ids)
    )


def max_logit_adjustments(params: SamplingParams, prompt_tokens: Set[int], max_new_tokens: int) -> int:
    """The most adjustments that a request can come to need in one step."""
    most = len(params.logit_bias)
    if params.has_penalties:
        most += max_new_tokens
    if params.repetition_penalty != 1.0:
        most += len(prompt_tokens)
    return most


def probabilities(params: SamplingParams, logits: tuple[float, ...]) -> list[float]:
    """Unnormalised probabilities of candidates (best first) after temperature, top-k, top-p and min-p, in that order.

    The list may be shorter than `logits`: the candidates behind it are ruled out. `params.temperature` is not 0.
    """
    kept = logits[: params.top_k] if params.top_k else logits
    weights = [math.exp((logit - kept[0]) / params.temperature) for logit in kept]
    if params.top_p < 1.0:
        target = params.top_p * math.fsum(weights)
        sums = itertools.accumulate(weights)
        weights = weights[: next((i + 1 for i, total in enumerate(sums) if total >= target), len(weights))]
    return [weight for weight in weights if weight >= params.min_p]


def sample(params: SamplingParams, row: RowCandidates, rng: random.Random) -> Sampled:
    """Choose from a row. Draws one number from `rng` unless the request is greedy.

    Raises `DeviceError` where the logits are no numbers, as after a fault on the device.
    """
    token_ids, logits = row.token_ids, row.logits
    if len(logits) > 1 and logits[-1] == -math.inf:
        logits = tuple(itertools.takewhile(lambda logit: logit > -math.inf, logits)) or logits[:1]
        token_ids = token_ids[: len(logits)]
    if not (logits and math.isfinite(logits[0]) and math.isfinite(row.logsumexp)):
        raise DeviceError(f"the device gave no finite logits: {logits[:3]}, logsumexp {row.logsumexp}")
    index = 0
    if not params.is_greedy:
        weights = probabilities(params, logits)
        threshold = rng.random() * math.fsum(weights)
        sums = itertools.accumulate(weights)
        index = next((i for i, total in enumerate(sums) if total > threshold), len(weights) - 1)
    if params.logprobs is None:
        return Sampled(token_ids[index], None, ())
    logprobs = [TokenLogprob(t, logit - row.logsumexp) for t, logit in zip(token_ids, logits, strict=True)]
    return Sampled(token_ids[index], logprobs[index].logprob, tuple(logprobs[: params.logprobs]))

"""What is refused before it waits: requests that could never run, with the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pageloom.engine.batch import RunnerLimits
from pageloom.engine.classification import Label
from pageloom.engine.sampler import max_logit_adjustments
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import CapacityExceeded, InvalidArgument
from pageloom.kv.block_table import blocks_for


def length_limit(prompt_length: int, params: SamplingParams, limits: RunnerLimits, context_length: int) -> int:
    """The most tokens of prompt and output together, at which the request ends by "length".

    That is the smallest of what `max_tokens` asks for, the context, and what the pool can hold for one request with
    one more token, since the last token is never fed back. So `max_tokens` may ask for more than there is room for; a
    prompt without room for one new token raises `CapacityExceeded`.
    """
    max_blocks = min(limits.num_blocks, limits.max_blocks_per_sequence)
    needed = blocks_for(prompt_length, limits.block_size)
    if needed > max_blocks:
        raise CapacityExceeded(
            f"the prompt of {prompt_length} tokens needs {needed} blocks of {limits.block_size}; one request can have "
            f"{max_blocks}. Shorten the prompt or give the KV pool more memory",
            param="prompt",
        )
    if prompt_length + 1 > context_length:
        raise CapacityExceeded(
            f"the prompt of {prompt_length} tokens and one new token exceed the context of {context_length}. Shorten "
            "the prompt",
            param="prompt",
        )
    room = min(context_length, max_blocks * limits.block_size + 1)
    return room if params.max_tokens is None else min(room, prompt_length + params.max_tokens)


def check_token_ids(prompt_ids: Sequence[int], params: SamplingParams, vocab_size: int) -> None:
    """Raise `InvalidArgument` for an empty prompt or an id outside the vocabulary."""
    if not prompt_ids:
        raise InvalidArgument("the prompt has no tokens; at least one is needed", param="prompt")
    for param, token_ids in (("prompt", prompt_ids), ("logit_bias", params.logit_bias)):
        for token_id in token_ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
                raise InvalidArgument(
                    f"{param} has the token {token_id!r}; a token id is a whole number from 0 to {vocab_size - 1}",
                    param=param,
                )


def check_sampling(prompt_ids: Sequence[int], params: SamplingParams, limits: RunnerLimits, max_new: int) -> None:
    """Raise `CapacityExceeded` where the Runner gives too few candidates or changes too few logits for `params`.

    `max_new` is the most tokens that the request can come to.
    """
    for param, count in (("top_k", params.top_k), ("logprobs", params.logprobs or 0)):
        if count > limits.max_candidates:
            raise CapacityExceeded(
                f"{param} is {count}; this runner gives the best {limits.max_candidates} tokens of a row", param=param
            )
    prompt_tokens = frozenset(prompt_ids)
    adjustments = max_logit_adjustments(params, prompt_tokens, max_new)
    if adjustments > limits.max_adjustments:
        raise CapacityExceeded(
            f"penalties and logit bias may change {adjustments} logits a step; this runner changes up to "
            f"{limits.max_adjustments}. Lower max_tokens, shorten the prompt or leave the penalties out",
            param="logit_bias" if len(params.logit_bias) > limits.max_adjustments else "repetition_penalty",
        )


def check_labels(
    prompt_length: int, labels: Sequence[Label], num_end_ids: int, limits: RunnerLimits, context_length: int
) -> None:
    """Raise `CapacityExceeded` where a label finds no room behind the prompt, or where a row would have too many
    targets: the labels' first tokens, or the `num_end_ids` tokens that end an answer."""
    if labels and max(len(labels), num_end_ids) > limits.max_targets:
        raise CapacityExceeded(
            f"{len(labels)} choices and {num_end_ids} stop tokens; this runner compares {limits.max_targets} tokens",
            param="choices",
        )
    room = min(
        context_length, limits.max_blocks_per_sequence * limits.block_size, limits.num_blocks * limits.block_size
    )
    for label in labels:
        if prompt_length + len(label.token_ids) > room:
            raise CapacityExceeded(
                f"the prompt of {prompt_length} tokens and a choice of {len(label.token_ids)} tokens exceed {room}. "
                "Shorten them",
                param="choices",
            )


def check_queue(num_waiting: int, max_waiting: int | None) -> None:
    """Raise `CapacityExceeded` where the queue is full; None is a queue without bound."""
    if max_waiting is not None and num_waiting >= max_waiting:
        raise CapacityExceeded(
            f"{num_waiting} requests are waiting already; the queue holds {max_waiting}. Try again later", param=None
        )

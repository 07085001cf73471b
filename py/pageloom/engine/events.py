"""What a request tells its caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pageloom.errors import PageloomError

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of tokens. `cached_tokens` of the prompt were taken from the prefix cache when it was first scheduled."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural logarithm of a token's probability at temperature 1, after penalties and bias, among the tokens that are
    allowed."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token, in order, each exactly once.

    `text_delta` is the text that can be shown now: empty while bytes of a character are missing or the text may be the
    beginning of a stop string. The token that ends the request (stop token, or the one that completes a stop string)
    has an event too.
    """

    token_id: int
    text_delta: str
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelScore:
    """`logprob` is ln P(the answer is this label and nothing more); `probability` is among the given labels."""

    label: str
    logprob: float
    probability: float


@dataclass(frozen=True, slots=True)
class FinishEvent:
    """The last event. `stop_reason` is the stop token or stop string; `error` goes with the reason "error"; `labels`
    are those of a classification, in the order in which they were given."""

    reason: FinishReason
    usage: Usage
    stop_reason: int | str | None = None
    error: PageloomError | None = None
    labels: tuple[LabelScore, ...] = ()


Event = TokenEvent | FinishEvent


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds since the request was submitted; None where it never came to that."""

    first_token: float | None
    finished: float
    admitted: float | None = None
    """When it first had a row and blocks."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole request. `output_ids` includes the stop token or the tokens of the stop string; `text` does not.

    After an abort `text` is what had been shown. `logprobs` has one entry an output token where they were asked for.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    stop_reason: int | str | None
    usage: Usage
    logprobs: tuple[TokenLogprob, ...]
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...]
    timings: Timings
    labels: tuple[LabelScore, ...] = ()

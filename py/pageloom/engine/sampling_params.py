"""How the next token of a request is chosen and when the request ends, with OpenAI's names and ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pageloom.errors import InvalidArgument, shown

MAX_STOP_STRINGS = 16
MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Raises `InvalidArgument`, its `param` the field at fault, for a value outside its range."""

    max_tokens: int | None = None
    """At least 1; None is up to the context. The context and the pool end a longer request earlier, by "length"."""
    temperature: float = 0.0
    """0 to 2; 0 is greedy."""
    top_p: float = 1.0
    """In (0, 1]: the fewest tokens whose probabilities add up to it; 1 is off."""
    top_k: int = 0
    """The k most probable tokens; 0 is as many as the Runner gives (`RunnerLimits.max_candidates`)."""
    min_p: float = 0.0
    """0 to 1: tokens at least this probable relative to the most probable one; 0 is off."""
    seed: int | None = None
    """Any integer makes the request reproducible, whatever runs beside it."""
    stop: tuple[str, ...] = ()
    """At most 16 strings (or one), none empty; the text ends before the first one that is completed."""
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    """Go on past the model's own stop tokens; `stop_token_ids` still end the request."""
    repetition_penalty: float = 1.0
    """0.01 to 10: divides positive and multiplies negative logits of tokens of the prompt and the output."""
    presence_penalty: float = 0.0
    """-2 to 2: subtracted from the logits of tokens of the output."""
    frequency_penalty: float = 0.0
    """-2 to 2: subtracted for each time that a token is in the output."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Token id to a value from -100 to 100 that is added to its logit."""
    logprobs: int | None = None
    """0 to 20 alternatives beside the log-probability of each chosen token; None gives no log-probabilities."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else _items("stop", self.stop))
        object.__setattr__(self, "stop_token_ids", _items("stop_token_ids", self.stop_token_ids))
        _check_integer("max_tokens", self.max_tokens, 1, None, optional=True)
        _check_number("temperature", self.temperature, 0.0, 2.0)
        _check_number("top_p", self.top_p, 0.0, 1.0, above_low=True)
        _check_integer("top_k", self.top_k, 0, None)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_integer("seed", self.seed, None, None, optional=True)
        _check_number("repetition_penalty", self.repetition_penalty, 0.01, 10.0)
        _check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS, optional=True)
        if not isinstance(self.ignore_eos, bool):
            raise InvalidArgument(f"ignore_eos is true or false, not {shown(self.ignore_eos)}", param="ignore_eos")
        for token_id in self.stop_token_ids:
            _check_integer("stop_token_ids", token_id, 0, None)
        if not isinstance(self.logit_bias, Mapping):
            raise InvalidArgument(
                f"logit_bias is {shown(self.logit_bias)}; it maps token ids to numbers", param="logit_bias"
            )
        for token_id, bias in self.logit_bias.items():
            _check_integer("logit_bias", token_id, 0, None)
            _check_number("logit_bias", bias, -100.0, 100.0)
        self._check_stop_strings()

    def _check_stop_strings(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidArgument(
                f"{len(self.stop)} stop strings; at most {MAX_STOP_STRINGS} are allowed", param="stop"
            )
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise InvalidArgument(f"stop has {shown(text)}; a stop string has at least one character", param="stop")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether the distribution depends on the tokens sampled so far other than through the model."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def needs_host(self) -> bool:
        """Whether the next step cannot be made before the host has seen the last one's candidates."""
        return not self.is_greedy or self.has_penalties


def _items(name: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, Iterable):
        raise InvalidArgument(f"{name} is {shown(value)}; it has to be a list", param=name)
    return tuple(value)


def _check_integer(name: str, value: object, low: int | None, high: int | None, *, optional: bool = False) -> None:
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{name} is {shown(value)}; it has to be a whole number", param=name)
    least, most = -(2**63) if low is None else low, 2**63 - 1 if high is None else high
    if not least <= value <= most:
        allowed = f"at least {low}" if high is None and value < least else f"{least} to {most}"
        raise InvalidArgument(f"{name} is {shown(value)}; allowed is {allowed}", param=name)


def _check_number(name: str, value: object, low: float, high: float, *, above_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name} is {shown(value)}; it has to be a number", param=name)
    if not low <= value <= high or (above_low and value == low):
        allowed = f"over {low:g} and at most {high:g}" if above_low else f"{low:g} to {high:g}"
        raise InvalidArgument(f"{name} is {shown(value)}; allowed is {allowed}", param=name)

"""One prompt on its way through the engine."""

from __future__ import annotations

import enum
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from pageloom.engine.batch import RowCandidates
from pageloom.engine.events import (
    Completion,
    Event,
    FinishEvent,
    FinishReason,
    Timings,
    TokenEvent,
    TokenLogprob,
    Usage,
)
from pageloom.engine.output_text import OutputText
from pageloom.engine.sampler import TokenAdjustment, logit_adjustments, sample
from pageloom.engine.sampling_params import SamplingParams
from pageloom.engine.snapshot import RequestRecord
from pageloom.errors import PageloomError
from pageloom.kv.block_table import BlockTable


class RequestState(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    """Waiting again: its blocks were taken, its tokens and its random state were not."""
    FINISHED = "finished"


class Request:
    """The tokens of a prompt and its output, and how far the device has come with them.

        token_ids:   prompt | output known to the host  | num_pending sampled on the device, not known yet
        positions:   [0 ------- num_submitted) in steps that are done or under way

    A request that could run in the next step has `num_submitted < length`.
    """

    def __init__(
        self,
        request_id: str,
        arrival: int,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        table: BlockTable,
        length_limit: int,
        stop_ids: frozenset[int],
        text: OutputText,
        listener: Callable[[Event], None],
    ) -> None:
        """`table` is empty. `length_limit` bounds prompt and output together. `stop_ids` respects `ignore_eos`."""
        self.id = request_id
        self.arrival = arrival
        self.params = params
        self.length_limit = length_limit
        self.prompt_length = len(prompt_ids)
        self.token_ids = list(prompt_ids)
        self.state = RequestState.WAITING
        self.table = table
        self.num_submitted = 0
        self.num_pending = 0
        self.cached_tokens: int | None = None
        self.error: PageloomError | None = None
        self._stop_ids = stop_ids
        self._text = text
        self._listener = listener
        self._random = random.Random(params.seed)
        self._prompt_tokens = frozenset(prompt_ids) if params.repetition_penalty != 1.0 else frozenset()
        self._output_counts: Counter[int] = Counter()
        self._logprobs: list[TokenLogprob] = []
        self._top_logprobs: list[tuple[TokenLogprob, ...]] = []
        self._finish: FinishEvent | None = None
        self._submitted_at = time.perf_counter()
        self._admitted_at: float | None = None
        self._first_token_at: float | None = None
        self._finished_at = 0.0

    @property
    def num_known(self) -> int:
        return len(self.token_ids)

    @property
    def length(self) -> int:
        """Tokens of the prompt and the output, those included that only the device knows."""
        return self.num_known + self.num_pending

    @property
    def is_finished(self) -> bool:
        return self.state is RequestState.FINISHED

    @property
    def is_complete(self) -> bool:
        """Whether enough tokens have been sampled, the pending ones included."""
        return self.length >= self.length_limit

    @property
    def max_cached(self) -> int:
        """The most positions that ever hold K and V: the last token of the request is never fed back."""
        return self.length_limit - 1

    @property
    def usage(self) -> Usage:
        return Usage(self.prompt_length, self.num_known - self.prompt_length, self.cached_tokens or 0)

    def admit(self, cached_tokens: int) -> bool:
        """Take down that it has a row and blocks, `cached_tokens` of them computed; False where it had some before."""
        if self.cached_tokens is not None:
            return False
        self.cached_tokens = cached_tokens
        self._admitted_at = time.perf_counter()
        return True

    def adjustments(self) -> tuple[TokenAdjustment, ...]:
        """The changes of the next row's logits."""
        return logit_adjustments(self.params, self._prompt_tokens, self._output_counts)

    def accept(self, row: RowCandidates) -> FinishEvent | None:
        """Take the result of this request's oldest pending row; returns how the request ends, if it does.

        Raises `DeviceError` for logits that are no numbers.
        """
        sampled = sample(self.params, row, self._random)
        token_id = sampled.token_id
        self.num_pending -= 1
        self.token_ids.append(token_id)
        self._output_counts[token_id] += 1
        if self._first_token_at is None:
            self._first_token_at = time.perf_counter()
        if sampled.logprob is not None:
            self._logprobs.append(TokenLogprob(token_id, sampled.logprob))
            self._top_logprobs.append(sampled.top_logprobs)
        text, reason, stop_reason = self._advance_text(token_id)
        self._listener(TokenEvent(token_id, text, sampled.logprob, sampled.top_logprobs))
        return FinishEvent(reason, self.usage, stop_reason) if reason else None

    def finish(self, event: FinishEvent) -> None:
        """Tell the caller that nothing more comes. Only the first call counts."""
        if self.is_finished:
            return
        self.state = RequestState.FINISHED
        self._finished_at = time.perf_counter()
        self._finish = event
        self.error = event.error
        self._listener(event)

    def completion(self) -> Completion:
        """The result of a finished request."""
        assert self._finish is not None, "completion() is for finished requests"
        return Completion(
            request_id=self.id,
            prompt_ids=tuple(self.token_ids[: self.prompt_length]),
            output_ids=tuple(self.token_ids[self.prompt_length :]),
            text=self._text.text,
            finish_reason=self._finish.reason,
            stop_reason=self._finish.stop_reason,
            usage=self._finish.usage,
            logprobs=tuple(self._logprobs),
            top_logprobs=tuple(self._top_logprobs),
            timings=self._timings,
        )

    def record(self) -> RequestRecord:
        """What the timeline keeps of a finished request."""
        assert self._finish is not None, "record() is for finished requests"
        usage, timings = self._finish.usage, self._timings
        return RequestRecord(
            id=self.id,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.completion_tokens,
            finish_reason=self._finish.reason,
            first_token=timings.first_token,
            finished=timings.finished,
        )

    @property
    def _timings(self) -> Timings:
        first, admitted = self._first_token_at, self._admitted_at
        return Timings(
            first_token=None if first is None else first - self._submitted_at,
            finished=self._finished_at - self._submitted_at,
            admitted=None if admitted is None else admitted - self._submitted_at,
        )

    def _advance_text(self, token_id: int) -> tuple[str, FinishReason | None, int | str | None]:
        """The text to show with this token, and why the request ends with it, if it does."""
        if token_id in self._stop_ids:
            return self._text.finish().text, "stop", token_id
        scan = self._text.feed(token_id)
        if scan.stopped_by is not None:
            return scan.text, "stop", scan.stopped_by
        if self.num_known < self.length_limit:
            return scan.text, None, None
        rest = self._text.finish()
        return scan.text + rest.text, "stop" if rest.stopped_by else "length", rest.stopped_by

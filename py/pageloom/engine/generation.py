"""A request that goes on from its prompt, token by token."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence

from pageloom.engine.batch import RowCandidates
from pageloom.engine.constraint import Constraint
from pageloom.engine.events import Completion, Event, FinishEvent, FinishReason, TokenEvent, TokenLogprob
from pageloom.engine.output_text import OutputText
from pageloom.engine.request import PLAIN_ROW, Chunk, Request, Row, StepRoom
from pageloom.engine.sampler import TokenAdjustment, logit_adjustments, num_candidates, sample
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import NotSupported
from pageloom.kv.block_table import BlockTable


class Generation(Request):
    """Samples tokens until one of them ends the text, or until there are enough."""

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
        constraint: Constraint | None,
        listener: Callable[[Event], None],
    ) -> None:
        """`stop_ids` respects `ignore_eos`. Raises what `constraint.allowed` raises."""
        super().__init__(request_id, arrival, prompt_ids, table=table, length_limit=length_limit, listener=listener)
        self._params = params
        self.num_pending = 0
        self._stop_ids = stop_ids
        self._text = text
        self._constraint = constraint
        self._allowed = None if constraint is None else constraint.allowed()
        self._random = random.Random(params.seed)
        self._prompt_tokens = frozenset(prompt_ids) if params.repetition_penalty != 1.0 else frozenset()
        self._output_counts: Counter[int] = Counter()
        self._logprobs: list[TokenLogprob] = []
        self._top_logprobs: list[tuple[TokenLogprob, ...]] = []

    @property
    def needs_host(self) -> bool:
        return self._constraint is not None or self._params.needs_host

    @property
    def is_decoding(self) -> bool:
        return self.length - self.num_submitted == 1

    @property
    def first_reservation(self) -> int:
        """The whole context and one new token; the last token of all is never fed back."""
        return min(self.num_known + 1, self.length_limit - 1)

    def is_ready(self, fed_by: Container[Request]) -> bool:
        next_is_known = self.num_submitted < self.num_known
        return self.length < self.length_limit and (next_is_known or self in fed_by)

    def next_chunk(self, room: StepRoom) -> Chunk | None:
        start = self.num_submitted
        end = min(self.length, start + room.tokens)
        if end == start:
            return None
        rows: tuple[Row, ...] = ()
        if end == self.length:
            adjustments = self._adjustments()
            if not room.rows or len(adjustments) > room.adjustments:
                return None
            rows = (PLAIN_ROW if not adjustments and self._allowed is None else Row(adjustments, self._allowed),)
        return Chunk(self, self.table, start, end, self.token_ids[start:end], rows)

    def submitted(self, chunk: Chunk) -> None:
        self.num_submitted = chunk.end
        self.num_pending += len(chunk.rows)

    def restart(self, table: BlockTable, *, device_lost: bool = False) -> None:
        super().restart(table)
        if device_lost:
            self.num_pending = 0

    def num_candidates(self, max_candidates: int) -> int:
        return num_candidates(self._params, max_candidates)

    def accept(self, chunk: Chunk, rows: Sequence[RowCandidates]) -> FinishEvent | None:
        """Take the result of the oldest pending row."""
        sampled = sample(self._params, rows[0], self._random)
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
        if reason is not None:
            return FinishEvent(reason, self.usage, stop_reason)
        return None if self._constraint is None else self._constrain(self._constraint)

    def completion(self) -> Completion:
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

    def _adjustments(self) -> tuple[TokenAdjustment, ...]:
        return logit_adjustments(self._params, self._prompt_tokens, self._output_counts)

    def _constrain(self, constraint: Constraint) -> FinishEvent | None:
        """Ask for the next mask; the request ends where there is none."""
        try:
            self._allowed = constraint.allowed()
        except NotSupported as error:
            return FinishEvent("error", self.usage, error=error)
        return None

    def _advance_text(self, token_id: int) -> tuple[str, FinishReason | None, int | str | None]:
        """The text to show with this token, and why the request ends with it, if it does."""
        if token_id in self._stop_ids:
            return self._text.finish().text, "stop", token_id
        scan = self._text.feed(token_id)
        if scan.stopped_by is not None:
            return scan.text, "stop", scan.stopped_by
        is_whole = False
        if self._constraint is not None:
            self._constraint.advance(token_id)
            is_whole = self._constraint.is_complete
        if not is_whole and self.num_known < self.length_limit:
            return scan.text, None, None
        rest = self._text.finish()
        return scan.text + rest.text, "stop" if is_whole or rest.stopped_by else "length", rest.stopped_by

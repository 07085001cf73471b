"""A request that asks how probable each of a few labels is as the whole answer.

The prompt is computed once. Each label then goes behind it in turn, over the positions of the label before, and the
distributions behind its tokens give ln P(label) = sum of ln P(token | prompt, tokens before), up to and with the end of
the answer. So labels are compared exactly, also where one begins like another; nothing is sampled on the way.

    positions:   prompt | label 1, then label 2 in its place, ...
    rows:             ^ first tokens of all labels   ^ behind each token of a label: its next token, or the end
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from pageloom.engine.batch import RowCandidates
from pageloom.engine.events import Completion, Event, FinishEvent, LabelScore, TokenEvent
from pageloom.engine.request import Chunk, Request, Row, StepRoom
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import DeviceError
from pageloom.kv.block_table import BlockTable


@dataclass(frozen=True, slots=True)
class Label:
    """`token_ids` spell `text` behind the prompt; there is at least one."""

    text: str
    token_ids: tuple[int, ...]


class _Track:
    """One label on its way: which of its tokens are submitted, and what is known of their log-probabilities."""

    def __init__(self, label: Label, end_ids: tuple[int, ...]) -> None:
        following = [(token_id,) for token_id in label.token_ids[1:]] + ([end_ids] if end_ids else [])
        self.label = label
        self.inputs = label.token_ids[: len(following)]
        self.rows = [Row(targets=targets) for targets in following]
        self.num_submitted = 0
        self.first: float | None = None
        self.rest: list[float | None] = [None] * len(following)

    @property
    def is_known(self) -> bool:
        return self.first is not None and None not in self.rest

    @property
    def logprob(self) -> float:
        return math.fsum(value for value in (self.first, *self.rest) if value is not None)


class Classification(Request):
    """The most probable label, or one drawn from the labels' probabilities where the temperature is not 0."""

    def __init__(
        self,
        request_id: str,
        arrival: int,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        labels: Sequence[Label],
        *,
        table: BlockTable,
        end_ids: Iterable[int],
        listener: Callable[[Event], None],
    ) -> None:
        """Of `params` the temperature and the seed count. `end_ids` are the tokens that end an answer, together;
        without any a label need not be the end."""
        longest = max(len(label.token_ids) for label in labels)
        length_limit = len(prompt_ids) + longest
        super().__init__(request_id, arrival, prompt_ids, table=table, length_limit=length_limit, listener=listener)
        self._params = params
        self._tracks = [_Track(label, tuple(sorted(end_ids))) for label in labels]
        self._queue = deque(track for track in self._tracks if track.inputs)
        self._under_way: dict[Chunk, tuple[_Track, int]] = {}
        self._prompt_row = Row(targets=tuple(sorted({label.token_ids[0] for label in labels})))
        self._chosen: Label | None = None

    @property
    def needs_host(self) -> bool:
        return False

    @property
    def is_decoding(self) -> bool:
        return False

    @property
    def first_reservation(self) -> int:
        return self.prompt_length + max(len(track.inputs) for track in self._tracks)

    def is_ready(self, fed_by: Container[Request]) -> bool:
        return self.num_submitted < self.prompt_length or bool(self._queue)

    def next_chunk(self, room: StepRoom) -> Chunk | None:
        if self.num_submitted < self.prompt_length:
            return self._prompt_chunk(room)
        track = self._queue[0]
        first = track.num_submitted
        rows: list[Row] = []
        num_targets = 0
        for row in track.rows[first : first + min(room.tokens, room.rows)]:
            num_targets += len(row.targets)
            if num_targets > room.targets:
                break
            rows.append(row)
        if not rows:
            return None
        start, last = self.prompt_length + first, first + len(rows)
        return Chunk(self, self.table, start, self.prompt_length + last, track.inputs[first:last], tuple(rows))

    def submitted(self, chunk: Chunk) -> None:
        """The next label begins where the prompt ends."""
        if chunk.start < self.prompt_length:
            self.num_submitted = chunk.end
            return
        track = self._queue[0]
        self._under_way[chunk] = (track, track.num_submitted)
        track.num_submitted += len(chunk.rows)
        if track.num_submitted == len(track.inputs):
            self._queue.popleft()

    def restart(self, table: BlockTable, *, device_lost: bool = False) -> None:
        """Labels of which not everything is submitted begin again; all that are not known, once nothing comes."""
        super().restart(table)
        if device_lost:
            self._under_way.clear()
            self._queue = deque(track for track in self._tracks if None in track.rest)
        for track in self._queue:
            track.num_submitted = 0

    def num_candidates(self, max_candidates: int) -> int:
        return 1

    def accept(self, chunk: Chunk, rows: Sequence[RowCandidates]) -> FinishEvent | None:
        known = [_logprobs(row) for row in rows]
        if chunk.start < self.prompt_length:
            first = dict(zip(self._prompt_row.targets, known[0], strict=True))
            for track in self._tracks:
                track.first = first[track.label.token_ids[0]]
        else:
            track, start = self._under_way.pop(chunk)
            track.rest[start : start + len(known)] = [_log_sum(logprobs) for logprobs in known]
        if not all(track.is_known for track in self._tracks):
            return None
        return self._choose()

    def completion(self) -> Completion:
        assert self._finish is not None, "completion() is for finished requests"
        return Completion(
            request_id=self.id,
            prompt_ids=tuple(self.token_ids[: self.prompt_length]),
            output_ids=tuple(self.token_ids[self.prompt_length :]),
            text="" if self._chosen is None else self._chosen.text,
            finish_reason=self._finish.reason,
            stop_reason=None,
            usage=self._finish.usage,
            logprobs=(),
            top_logprobs=(),
            timings=self._timings,
            labels=self._finish.labels,
        )

    def _prompt_chunk(self, room: StepRoom) -> Chunk | None:
        start = self.num_submitted
        end = min(self.prompt_length, start + room.tokens)
        is_last = end == self.prompt_length
        if end == start or (is_last and (not room.rows or len(self._prompt_row.targets) > room.targets)):
            return None
        rows = (self._prompt_row,) if is_last else ()
        return Chunk(self, self.table, start, end, self.token_ids[start:end], rows)

    def _choose(self) -> FinishEvent:
        logprobs = [track.logprob for track in self._tracks]
        most = max(logprobs)
        index = logprobs.index(most)
        if not self._params.is_greedy:
            weights = [math.exp((logprob - most) / self._params.temperature) for logprob in logprobs]
            (index,) = random.Random(self._params.seed).choices(range(len(weights)), weights)
        total = _log_sum(logprobs)
        label = self._chosen = self._tracks[index].label
        self._first_token_at = time.perf_counter()
        self.token_ids.extend(label.token_ids)
        for position, token_id in enumerate(label.token_ids):
            self._listener(TokenEvent(token_id, "" if position else label.text))
        scores = (
            LabelScore(track.label.text, logprob, math.exp(logprob - total))
            for track, logprob in zip(self._tracks, logprobs, strict=True)
        )
        return FinishEvent("stop", self.usage, labels=tuple(scores))


def _logprobs(row: RowCandidates) -> list[float]:
    """Of the row's targets."""
    if not (row.target_logits and all(map(math.isfinite, (*row.target_logits, row.logsumexp)))):
        raise DeviceError(f"the device gave no finite logits: {row.target_logits[:3]}, logsumexp {row.logsumexp}")
    return [logit - row.logsumexp for logit in row.target_logits]


def _log_sum(logprobs: Sequence[float]) -> float:
    """ln of the sum of probabilities."""
    most = max(logprobs)
    return most + math.log(math.fsum(math.exp(logprob - most) for logprob in logprobs))

"""One prompt on its way through the engine: what every kind of request has, and what of it a step takes."""

from __future__ import annotations

import enum
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from pageloom.engine.batch import RowCandidates
from pageloom.engine.events import Completion, Event, FinishEvent, Timings, Usage
from pageloom.engine.sampler import TokenAdjustment
from pageloom.engine.snapshot import RequestRecord
from pageloom.errors import PageloomError
from pageloom.kv.block_table import BlockTable


class RequestState(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    """Waiting again: its blocks were taken, its tokens and its random state were not."""
    FINISHED = "finished"


class Request(ABC):
    """The tokens of a prompt and its output, and how far the device has come with them.

    token_ids:   prompt | output known to the host  | num_pending sampled on the device, not known yet
    positions:   [0 ------- num_submitted) in steps that are done or under way
    """

    num_pending = 0

    def __init__(
        self,
        request_id: str,
        arrival: int,
        prompt_ids: Sequence[int],
        *,
        table: BlockTable,
        length_limit: int,
        listener: Callable[[Event], None],
    ) -> None:
        """`table` is empty. `length_limit` bounds prompt and output together."""
        self.id = request_id
        self.arrival = arrival
        self.length_limit = length_limit
        self.prompt_length = len(prompt_ids)
        self.token_ids = list(prompt_ids)
        self.state = RequestState.WAITING
        self.table = table
        self.num_submitted = 0
        self.cached_tokens: int | None = None
        self.error: PageloomError | None = None
        self._listener = listener
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
    def usage(self) -> Usage:
        return Usage(self.prompt_length, self.num_known - self.prompt_length, self.cached_tokens or 0)

    @property
    @abstractmethod
    def needs_host(self) -> bool:
        """Whether the next step cannot be made before the host has seen this request's row of the last one."""

    @property
    @abstractmethod
    def is_decoding(self) -> bool:
        """Whether all that is left to compute is the token sampled last."""

    @property
    @abstractmethod
    def first_reservation(self) -> int:
        """The positions for which there have to be blocks when the request starts or starts again."""

    @abstractmethod
    def is_ready(self, fed_by: Container[Request]) -> bool:
        """Whether the next step can go on with it. `fed_by` has the requests whose pending token the step submitted
        last can feed."""

    @abstractmethod
    def next_chunk(self, room: StepRoom) -> Chunk | None:
        """As much of its next tokens as there is room for; None, where there is too little."""

    @abstractmethod
    def submitted(self, chunk: Chunk) -> None:
        """Take down that a step with `chunk` is under way."""

    @abstractmethod
    def num_candidates(self, max_candidates: int) -> int:
        """How many candidates a row needs. A batch may bring more, which changes nothing."""

    @abstractmethod
    def accept(self, chunk: Chunk, rows: Sequence[RowCandidates]) -> FinishEvent | None:
        """Take the results of the rows of `chunk`; returns how the request ends, if it does.

        Raises `DeviceError` for logits that are no numbers.
        """

    @abstractmethod
    def completion(self) -> Completion:
        """The result of a finished request."""

    def admit(self, cached_tokens: int) -> bool:
        """Take down that it has a row and blocks, `cached_tokens` of them computed; False where it had some before."""
        if self.cached_tokens is not None:
            return False
        self.cached_tokens = cached_tokens
        self._admitted_at = time.perf_counter()
        return True

    def restart(self, table: BlockTable, *, device_lost: bool = False) -> None:
        """Begin again with an empty `table`. What is under way still comes unless the device is lost."""
        self.table = table
        self.num_submitted = 0

    def finish(self, event: FinishEvent) -> None:
        """Tell the caller that nothing more comes. Only the first call counts."""
        if self.is_finished:
            return
        self.state = RequestState.FINISHED
        self._finished_at = time.perf_counter()
        self._finish = event
        self.error = event.error
        self._listener(event)

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


@dataclass(frozen=True, slots=True)
class Row:
    """What is wanted of the next-token distribution behind one token."""

    adjustments: tuple[TokenAdjustment, ...] = ()
    allowed: bytes | None = None
    """As `RowMask.allowed`; None allows every token."""
    targets: tuple[int, ...] = ()
    """Tokens whose logits are wanted."""


PLAIN_ROW = Row()


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The new tokens of one request in one step: positions [start, end) of the table it has at that time."""

    request: Request
    table: BlockTable
    start: int
    end: int
    token_ids: Sequence[int]
    """The first of the new tokens; those behind are known to the device alone."""
    rows: tuple[Row, ...] = ()
    """Of the last tokens of the chunk, one each."""

    @property
    def num_tokens(self) -> int:
        return self.end - self.start

    @property
    def is_decode(self) -> bool:
        return self.start >= self.request.prompt_length and self.num_tokens == 1


@dataclass(slots=True)
class StepRoom:
    """What a step in the making has left."""

    tokens: int
    rows: int
    adjustments: int
    targets: int

    def take(self, chunk: Chunk) -> None:
        self.tokens -= chunk.num_tokens
        self.rows -= len(chunk.rows)
        for row in chunk.rows:
            self.adjustments -= len(row.adjustments)
            self.targets -= len(row.targets)

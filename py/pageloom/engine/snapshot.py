"""Plain pictures of the engine: for the page, for logs and for `validate_invariants`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block of the pool: free without owners and not cached, evictable without owners and cached, shared by two
    owners or more."""

    owners: tuple[str, ...]
    references: int
    serial: int | None
    """Which content is cached in it, if any: another serial is other content, and none comes twice."""

    @property
    def cached(self) -> bool:
        return self.serial is not None


@dataclass(frozen=True, slots=True)
class RequestView:
    """One live request; lengths in tokens as `Request` names them."""

    id: str
    arrival: int
    state: str
    prompt_length: int
    num_known: int
    num_pending: int
    num_submitted: int
    num_committed: int
    length_limit: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One finished step. `milliseconds` is from its submission, or from the end of the step before if that was later,
    to its end: records never overlap."""

    index: int
    num_sequences: int
    prefill_tokens: int
    decode_tokens: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that has ended. Times are in seconds since its submission; `first_token` is None where none came."""

    id: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    finish_reason: str
    first_token: float | None
    finished: float


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """The engine between two steps. `reuse_order` has the blocks without owners, next one first; `ended` the requests
    that ended last, in that order."""

    block_size: int
    max_running: int
    blocks: tuple[BlockView, ...]
    reuse_order: tuple[int, ...]
    running: tuple[RequestView, ...]
    waiting: tuple[RequestView, ...]
    num_in_flight: int
    steps: tuple[StepRecord, ...]
    ended: tuple[RequestRecord, ...]


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Totals since the engine was made, and what is live now. Blocks are those in use by requests; cached ones without
    owner do not count."""

    running: int
    waiting: int
    steps: int
    prefill_tokens: int
    decode_tokens: int
    output_tokens: int
    cached_tokens: int
    """Prompt tokens that were taken from the prefix cache instead of being computed."""
    preemptions: int
    evictions: int
    """Cached blocks whose content was given up for other content."""
    num_blocks: int
    used_blocks: int
    shared_blocks: int
    peak_blocks: int
    peak_shared_blocks: int
    busy_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second of the time in which steps were under way."""
        return self.output_tokens / self.busy_seconds if self.busy_seconds else 0.0

"""How an engine schedules."""

from __future__ import annotations

from dataclasses import dataclass

from pageloom.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What can be set of an engine. Raises `InvalidArgument` for values that cannot work."""

    token_budget: int | None = None
    """New tokens a step over all requests; None is as many as the Runner takes."""
    max_waiting: int | None = None
    """Requests that may wait for a row; None is any number."""
    pipeline_depth: int = 2
    """Steps under way at once; 1 waits for each result."""
    share_prefixes: bool = True
    """Whether requests share blocks of equal content; without it a request finds only its own blocks again."""
    timeline_length: int = 256
    """How many of the last steps a snapshot has."""

    def __post_init__(self) -> None:
        for name in ("token_budget", "max_waiting", "pipeline_depth", "timeline_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidArgument(f"{name} is {value}; it has to be at least 1", param=name)

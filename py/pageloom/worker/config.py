"""What a worker may be told, and what it then allows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields

from pageloom.errors import InvalidArgument

MEBIBYTE = 2**20
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?|[a-z-]+://[a-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client can take of the worker. Counts and bytes are inclusive; times are in seconds."""

    queue: int = 128
    """Answers that may wait for a row of the step, over all clients."""
    choices: int = 128
    """Answers of one request: its prompts times n."""
    body_bytes: int = 4 * MEBIBYTE
    """Of a JSON body."""
    file_bytes: int = 128 * MEBIBYTE
    """Of an uploaded file of prompts."""
    tensor_bytes: int = 256 * MEBIBYTE
    """Of the body of an operator call."""
    tensors: int = 64
    """In an operator call."""
    operator_queue: int = 16
    """Operator calls that may wait or run."""
    batch_rows: int = 100_000
    """Rows of one batch."""
    connections: int = 1024
    header_seconds: float = 15.0
    """For the headers of a request to arrive, from the connection or from the last response."""
    body_seconds: float = 60.0
    """For a body to arrive."""
    request_seconds: float = 600.0
    """From the body to the last byte of the answer."""
    grace_seconds: float = 30.0
    """For what runs when the worker is told to stop; then it is aborted."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            least = 0 if limit.name == "queue" or limit.name.endswith("_seconds") else 1
            if value < least:
                raise InvalidArgument(f"{limit.name} is {value}; at least {least} is needed", param=limit.name)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask. Raises `InvalidArgument` for an origin that is none, or a token that no header could carry."""

    origins: frozenset[str] = frozenset()
    """Origins of pages that may ask, such as `http://localhost:8642`."""
    token: str | None = field(default=None, repr=False)
    """Where given, every request but `/healthz` needs `Authorization: Bearer TOKEN`."""

    def __post_init__(self) -> None:
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise InvalidArgument(
                    f"{origin!r} is no origin; one looks like http://localhost:8642, without a path", param="origin"
                )
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise InvalidArgument("the token has to be printable ASCII without spaces, and not empty", param="token")

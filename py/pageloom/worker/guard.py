"""Who is let in: requests to this machine's own names, from pages that were named, with the token.

A web page anywhere can make a browser send requests to 127.0.0.1. What stops it: its origin is not among those allowed,
and a host name of its own that it points at 127.0.0.1 (DNS rebinding) is not a name of this machine.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from pageloom.worker.config import LOOPBACK_NAMES, Access
from pageloom.worker.errors import ForbiddenOrigin, RequestError, Unauthorized, WrongHost
from pageloom.worker.responses import error_response

OPEN_PATHS = frozenset({"/healthz"})
"""Answered without the token."""


def guards(access: Access) -> list[Middleware]:
    """The middleware, outermost first: a page that may ask can read that its token is wrong, another page nothing."""
    cors = Middleware(
        CORSMiddleware,
        allow_origins=sorted(access.origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        allow_private_network=True,
        expose_headers=["Retry-After"],
    )
    guard_token = [] if access.token is None else [Middleware(TokenGuard, token=access.token)]
    return [Middleware(SiteGuard, origins=access.origins), cors, *guard_token]


class _Guard(ABC):
    """Passes a request on unless there is a reason against it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self.refusal(scope["path"], Headers(scope=scope)) if scope["type"] == "http" else None
        await (self._app if refusal is None else error_response(refusal))(scope, receive, send)

    @abstractmethod
    def refusal(self, path: str, headers: Headers) -> RequestError | None: ...


class SiteGuard(_Guard):
    """Refuses a Host that is no name of the loopback address, and pages of origins that are not allowed."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        super().__init__(app)
        self._origins = origins

    def refusal(self, path: str, headers: Headers) -> RequestError | None:
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name.lower() not in LOOPBACK_NAMES:
            return WrongHost(f"the host is {host!r}; only {', '.join(LOOPBACK_NAMES)} are served here")
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins:
            return ForbiddenOrigin(f"pages of {origin} are not served; `--allow-origin {origin}` would allow them")
        # A request that a page makes without an Origin header, such as for an image, says so in this one.
        if origin is None and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return ForbiddenOrigin("what a page includes from another site is not served")
        return None


class TokenGuard(_Guard):
    """Refuses requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        super().__init__(app)
        self._token = token

    def refusal(self, path: str, headers: Headers) -> RequestError | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        right = scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode())
        if right or path in OPEN_PATHS:
            return None
        return Unauthorized("this worker needs its token: send the header `Authorization: Bearer TOKEN`")

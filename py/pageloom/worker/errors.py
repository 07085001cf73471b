"""Errors that only a server has; each is an OpenAI error object with its HTTP status."""

from __future__ import annotations

from pageloom.errors import PageloomError


class RequestError(PageloomError):
    """Base of what a client did wrong or has to wait for."""

    openai_type = "invalid_request_error"


class Unauthorized(RequestError):
    """The token is missing or another one."""

    code = "invalid_api_key"
    http_status = 401


class ForbiddenOrigin(RequestError):
    """A page of a site that the worker was not told to serve."""

    code = "forbidden_origin"
    http_status = 403


class NotFound(RequestError):
    """No such path, file or batch."""

    code = "not_found"
    http_status = 404


class ModelNotFound(RequestError):
    """The worker serves another model."""

    code = "model_not_found"
    http_status = 404


class MethodNotAllowed(RequestError):
    """The path has other methods."""

    code = "method_not_allowed"
    http_status = 405


class BodyTooSlow(RequestError):
    """The body did not arrive in time."""

    code = "body_timeout"
    http_status = 408


class BodyTooLarge(RequestError):
    """The body has more bytes than the path takes; it was not read any further."""

    code = "body_too_large"
    http_status = 413


class UnsupportedMediaType(RequestError):
    """The Content-Type is not one that the path takes."""

    code = "unsupported_media_type"
    http_status = 415


class WrongHost(RequestError):
    """The Host is not a name of this machine: a foreign name that was pointed at its address."""

    code = "wrong_host"
    http_status = 421


class QueueFull(RequestError):
    """As many requests wait as may; a later one may find room."""

    code = "queue_full"
    openai_type = "rate_limit_error"
    http_status = 429


class Stopping(PageloomError):
    """The worker is on its way out."""

    code = "server_stopping"
    http_status = 503


class TimedOut(PageloomError):
    """The answer took longer than a request may take; what was computed of it is lost."""

    code = "timed_out"
    http_status = 504

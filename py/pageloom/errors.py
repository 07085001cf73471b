"""The typed errors of the project.

Each says what was given, what is allowed and what to do about it, and maps one to one to an OpenAI error object.
"""

from __future__ import annotations

from typing import ClassVar


class PageloomError(Exception):
    """Base of every error that the project raises on purpose.

    `param` names the argument, field or tensor at fault, where there is one.
    """

    code: ClassVar[str] = "internal_error"
    openai_type: ClassVar[str] = "server_error"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def to_openai(self) -> dict[str, dict[str, str | None]]:
        """The body of OpenAI's error response."""
        return {"error": {"message": self.message, "type": self.openai_type, "param": self.param, "code": self.code}}


class InvalidArgument(PageloomError):
    """The caller gave a value that no version of the project could accept."""

    code = "invalid_argument"
    openai_type = "invalid_request_error"
    http_status = 400


class NotSupported(PageloomError):
    """A well-formed request for something that this backend, device or model does not do."""

    code = "not_supported"
    openai_type = "invalid_request_error"
    http_status = 400


class CapacityExceeded(PageloomError):
    """A request that can never fit the pool, the context or a queue, however long it waits."""

    code = "capacity_exceeded"
    openai_type = "invalid_request_error"
    http_status = 400


class BadModelFile(PageloomError):
    """A model file that is damaged, hostile or of a kind that the project does not read."""

    code = "bad_model_file"
    openai_type = "invalid_request_error"
    http_status = 400


class DeviceError(PageloomError):
    """The device refused a resource, a shader or a command."""

    code = "device_error"


class OutOfMemory(DeviceError):
    """The device has no room for a buffer."""

    code = "out_of_memory"


class DeviceLost(DeviceError):
    """The device is gone (driver reset, GPU process ended, `destroy()`); everything on it is lost."""

    code = "device_lost"
    http_status = 503


class NotWarmedUp(DeviceError):
    """A CUDA graph capture met a call that has nothing built yet, and building cannot be captured."""

    code = "not_warmed_up"


def shown(value: object) -> str:
    """`value` as messages show it: short, and also where Python refuses to write out a number of so many digits."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."

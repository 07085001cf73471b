"""What an engine does about a lost device, and what it tells of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pageloom.engine.batch import Runner
from pageloom.errors import DeviceLost, PageloomError

R = TypeVar("R", bound=Runner)
PAUSE_SECONDS = 10.0
"""A device that is lost again so soon after a recovery would be lost for ever."""


@dataclass(frozen=True, slots=True)
class RecoveryEvent:
    """The device is "lost", everything goes on on another one ("recovered"), or no other could be had ("gone")."""

    state: Literal["lost", "recovered", "gone"]
    requests: int
    """How many are live: they go on from the tokens that they have, or end where the device is gone."""
    seconds: float = 0.0
    """From the loss to this event."""
    error: DeviceLost | None = None
    """Where it is gone, why."""


@dataclass(frozen=True, slots=True)
class Recovery(Generic[R]):
    """`replace` makes a Runner with the same limits on another device; `tell` hears of each loss and its outcome."""

    replace: Callable[[], Awaitable[R]]
    tell: Callable[[RecoveryEvent], None] = lambda event: None


async def replacement(recovery: Recovery[R], lost: R, since_last: float) -> R:
    """A Runner in the place of one whose device was lost, which is closed first.

    `since_last` are the seconds since the last recovery. Raises `DeviceLost`, with the reason, where there is none.
    """
    lost.close()
    if since_last < PAUSE_SECONDS:
        raise DeviceLost(
            f"the device was lost again {since_last:.0f} seconds after it had been replaced. The driver or the GPU "
            "does not bear this work: load the model again with fewer sequences or less memory, or a smaller one"
        )
    try:
        runner = await recovery.replace()
    except PageloomError as error:
        raise DeviceLost(f"the device was lost and no other could take its place: {error.message}") from error
    if runner.limits != lost.limits:
        runner.close()
        raise DeviceLost("the device was lost and the one in its place offers less; load the model again")
    return runner

"""What the page's worker starts: one loaded model, with jobs in and replies out as JSON text."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pageloom.engine.recovery import RecoveryEvent
from pageloom.engine.runner_settings import RunnerSettings
from pageloom.errors import InvalidArgument
from pageloom.loading import load
from pageloom.progress import Progress
from pageloom.session import Post, Session, error_object
from pageloom.tab.bridge import use_bridge


async def start(bridge: Any, source: Any, options: str, post: Post, on_progress: Post) -> Session | str:
    """Load a model from a JavaScript source. `options` are fields of `RunnerSettings`; `post` takes arrays of replies.

    Returns the session, or the error object that says why there is none.
    """
    use_bridge(bridge)

    def tell(progress: Progress) -> None:
        on_progress(json.dumps(asdict(progress)))

    session: Session | None = None

    def on_recovery(event: RecoveryEvent) -> None:
        if session is not None:
            session.tell(event)

    try:
        settings = runner_settings(json.loads(options))
        model = await load(source, settings=settings, on_progress=tell, on_recovery=on_recovery)
        session = Session(model, post)
        return session
    except Exception as error:
        return json.dumps(error_object(error))


def runner_settings(options: dict[str, Any]) -> RunnerSettings:
    """Raises `InvalidArgument` for fields that `RunnerSettings` does not have."""
    try:
        return RunnerSettings(**options)
    except TypeError as error:
        raise InvalidArgument(f"unknown option for loading: {error}") from error

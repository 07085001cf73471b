"""The model under the name that clients use, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pageloom.worker.api.answers import Answer
from pageloom.worker.api.call import Call, Json, TokenBytes, check_model
from pageloom.worker.api.chat import parse_chat
from pageloom.worker.api.completions import parse_completion
from pageloom.worker.config import Limits
from pageloom.worker.model_thread import ModelThread

ENDPOINTS: Mapping[str, Callable[[Mapping[str, Any], TokenBytes, int], Call]] = {
    "/v1/chat/completions": parse_chat,
    "/v1/completions": parse_completion,
}


@dataclass(frozen=True, slots=True)
class TextService:
    """Answers calls; those of clients and of batches alike."""

    name: str
    model: ModelThread
    limits: Limits

    def parse(self, endpoint: str, body: Mapping[str, Any]) -> Call:
        """What a body asks of an endpoint. Raises as its parser does, and `ModelNotFound`."""
        check_model(body, self.name)
        return ENDPOINTS[endpoint](body, self.model.token_bytes, self.limits.choices)

    async def answer(self, call: Call, deadline: float | None = None) -> Json:
        """The whole response. Raises what the engine raises; the call ends with its caller."""
        generation = await self.model.submit(call.jobs, deadline)
        try:
            return await Answer(call, self.name).whole(generation)
        finally:
            generation.abort()

"""Batches, submitted and waited for with the official client."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from openai import OpenAI
from openai.types import Batch


def upload(client: OpenAI, content: bytes, name: str = "rows.jsonl") -> str:
    """The id of a new file."""
    return client.files.create(file=(name, content), purpose="batch").id


def submit(
    client: OpenAI, rows: Sequence[dict[str, Any]], endpoint: Any = "/v1/chat/completions", **options: Any
) -> Batch:
    """A new batch of `rows`."""
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return client.batches.create(
        input_file_id=upload(client, content), endpoint=endpoint, completion_window="24h", **options
    )


def wait(
    client: OpenAI, batch: Batch, until: Callable[[Batch], bool] = lambda batch: batch.status != "in_progress"
) -> Batch:
    """The batch as it is once `until` holds, or it has ended; asked for again and again."""
    while not until(batch := client.batches.retrieve(batch.id)) and batch.status == "in_progress":
        pass
    return batch

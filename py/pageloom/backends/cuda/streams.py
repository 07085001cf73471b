"""A second stream for what does not wait for the first; in a CUDA graph, a branch of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_streams: dict[int, torch.cuda.Stream] = {}


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """Queue what follows on the device's side stream, after what the current stream holds now.

    Tensors that it uses must be made before, and live until `join_side_stream`.
    """
    if device.type != "cuda":
        yield
        return
    side = _side(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        yield


def join_side_stream(device: torch.device) -> None:
    """Let the current stream wait for all that the side stream holds."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).wait_stream(_side(device))


def _side(device: torch.device) -> torch.cuda.Stream:
    index = device.index if device.index is not None else torch.cuda.current_device()
    if index not in _streams:
        _streams[index] = torch.cuda.Stream(device)
    return _streams[index]

"""Calls as CUDA graphs: captured once, replayed with whatever their tensors then hold."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from pageloom.backends.cuda.context import Context
from pageloom.errors import NotSupported


class CapturedGraph:
    """A captured graph. `replay` queues it on the current stream; the tensors it was captured with stay where they
    are."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self._graph = graph

    def replay(self) -> None:
        """Queue the captured calls once more; nothing is read back."""
        self._graph.replay()


def capture(context: Context, step: Callable[[], None], warm_up: Callable[[], None] | None = None) -> CapturedGraph:
    """`step` as one CUDA graph; see `CudaOperators.capture`."""
    device = context.device
    if device.type != "cuda":
        raise NotSupported(f"CUDA graphs need a GPU; the operators run on {context.facts.name}", param="device")
    if warm_up is not None:
        warm_up()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    # PyTorch leaves its capture's stream the current one where a capture fails, so the caller's is set again here.
    with (
        torch.cuda.device(device),
        torch.cuda.stream(torch.cuda.current_stream(device)),
        without_collections(),
        torch.cuda.graph(graph, capture_error_mode="thread_local"),
    ):
        step()
    return CapturedGraph(graph)


@contextmanager
def without_collections() -> Iterator[None]:
    """Hold the garbage collector off: a graph, or a stream's event, that it found would be destroyed inside the
    capture, which ends it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()

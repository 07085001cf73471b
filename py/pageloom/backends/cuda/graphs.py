"""Calls as CUDA graphs: captured once, replayed with whatever their tensors then hold."""

from __future__ import annotations

from collections.abc import Callable

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
    if context.device.type != "cuda":
        raise NotSupported(f"CUDA graphs need a GPU; the operators run on {context.facts.name}", param="device")
    if warm_up is not None:
        warm_up()
    torch.cuda.synchronize(context.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(context.device), torch.cuda.graph(graph):
        step()
    return CapturedGraph(graph)

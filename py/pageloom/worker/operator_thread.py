"""One operator at a time on a thread of its own, with devices that are opened when they are first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pageloom.attention.tensors import Tensor
from pageloom.errors import DeviceLost, NotSupported, PageloomError
from pageloom.worker.backends import BACKENDS, Backend, OpenBackend, find_backend
from pageloom.worker.errors import QueueFull


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """`inputs` go by their ONNX names and may be written; `options` are the keywords that are no inputs, as `tier`."""

    backend: str
    operator: str
    spec: Any
    inputs: Mapping[str, Tensor]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """What the operator gave, the tier that computed it, and for each faster tier why it did not."""

    outputs: dict[str, Tensor]
    tier: str
    reasons: dict[str, str]


class OperatorThread:
    """Used on the server's event loop."""

    def __init__(self, max_calls: int) -> None:
        """`max_calls` may wait or run."""
        self._thread = ThreadPoolExecutor(1, "pageloom-operators")
        self._open: dict[str, OpenBackend] = {}
        self._max_calls = max_calls
        self._calls = 0

    async def run(self, call: OperatorCall) -> OperatorResult:
        """Raises `QueueFull`, `NotSupported` where the backend lacks the operator, and what the operator raises.

        Where the caller is cancelled, a call that has begun is finished for nobody.
        """
        if self._calls >= self._max_calls:
            raise QueueFull(f"{self._calls} operator calls wait already; try again later")
        self._calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, call)
        finally:
            self._calls -= 1

    async def describe(self) -> list[dict[str, object]]:
        """Each backend: its operators, and why it does not run on this machine, where it does not."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._describe)

    async def close(self) -> None:
        """Drop what waits, wait for what runs, and close the devices."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        for backend in self._open.values():
            backend.close()

    # On the thread

    def _run(self, call: OperatorCall) -> OperatorResult:
        backend = find_backend(call.backend)
        if call.operator not in backend.operators:
            raise NotSupported(
                f"{call.operator} is not on {backend.name}; there is {', '.join(backend.operators)}", param="operator"
            )
        opened = self._opened(backend)
        if "tier" in call.options:
            opened.check_tier(call.options["tier"])
        try:
            operator = opened.operator(call.operator, call.spec)
            explained = operator.explain(**call.inputs, **call.options)
            outputs = operator(**call.inputs, **call.options)
        except DeviceLost:
            self._open.pop(backend.name).close()  # the next call opens another
            raise
        tensors = {name: _as_tensor(output) for name, output in outputs.items()}
        return OperatorResult(tensors, explained.tier, dict(explained.reasons))

    def _opened(self, backend: Backend) -> OpenBackend:
        if backend.name not in self._open:
            self._open[backend.name] = backend.open()
        return self._open[backend.name]

    def _describe(self) -> list[dict[str, object]]:
        return [
            {
                "backend": backend.name,
                "operators": backend.operators,
                "why_not": self._why_not(backend),
            }
            for backend in BACKENDS
        ]

    def _why_not(self, backend: Backend) -> str | None:
        try:
            self._opened(backend)
        except PageloomError as error:
            return error.message
        return None


def _as_tensor(output: Any) -> Tensor:
    """An output in plain bytes, whether the backend gives them or an array."""
    if isinstance(output, Tensor):
        return output
    from pageloom.attention.numerics.dtypes import as_tensor  # noqa: PLC0415 - needs numpy, as such backends do

    return as_tensor(output)

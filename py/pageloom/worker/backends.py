"""What computes here, a line for each backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pageloom.errors import InvalidArgument


class Operator(Protocol):
    """An operator with its attributes; inputs and outputs go by their ONNX names."""

    def __call__(self, **inputs: Any) -> Mapping[str, Any]: ...

    def explain(self, **inputs: Any) -> Any:
        """Has the `tier` that would run, and the `reasons` against every faster one."""
        ...


class HasTiers(Protocol):
    @property
    def tiers(self) -> Sequence[str]:
        """Names of the implementations of its operators, fastest first."""
        ...


class OpenBackend:
    """Operators of one device, each a method of `operators` that takes the spec, until `close`."""

    def __init__(self, operators: HasTiers, close: Callable[[], None]) -> None:
        self._operators = operators
        self.close = close

    def check_tier(self, tier: str) -> None:
        """Raise `InvalidArgument` for a tier that the backend does not have."""
        if tier not in self._operators.tiers:
            raise InvalidArgument(
                f"there is no tier {tier!r}; there is {', '.join(self._operators.tiers)}", param="tier"
            )

    def operator(self, name: str, spec: Any) -> Operator:
        """The operator of that name with the attributes `spec`. Raises as the operator's constructor does."""
        make: Callable[[Any], Operator] = getattr(self._operators, name)
        return make(spec)


@dataclass(frozen=True, slots=True)
class Backend:
    """`operators` are the names of those that it has. `open` raises why it cannot run on this machine."""

    name: str
    runs_models: bool
    operators: tuple[str, ...]
    open: Callable[[], OpenBackend]


def _open_webgpu() -> OpenBackend:
    from pageloom.backends.webgpu.native import open_native_device  # noqa: PLC0415 - optional
    from pageloom.backends.webgpu.operators import WebGpuOperators  # noqa: PLC0415

    device = asyncio.run(open_native_device())
    return OpenBackend(WebGpuOperators(device), device.close)


BACKENDS = (Backend("webgpu", runs_models=True, operators=("paged_attention",), open=_open_webgpu),)
MODEL_BACKENDS = tuple(backend.name for backend in BACKENDS if backend.runs_models)


def find_backend(name: str) -> Backend:
    """The backend of that name. Raises `InvalidArgument` where there is none."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    known = ", ".join(backend.name for backend in BACKENDS)
    raise InvalidArgument(f"there is no backend {name!r}; there is {known}", param="backend")

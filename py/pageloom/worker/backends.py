"""What computes here: a line for each backend in `BACKENDS`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pageloom.errors import InvalidArgument, NotSupported


class Operator(Protocol):
    """An operator with its attributes; inputs and outputs go by their ONNX names."""

    def __call__(self, **inputs: Any) -> Mapping[str, Any]: ...

    def explain(self, **inputs: Any) -> Any:
        """Has the `tier` that would run, and the `reasons` against every faster one."""
        ...


class Operators(Protocol):
    """Each operator is a method that takes its spec."""

    @property
    def tiers(self) -> Sequence[str]:
        """Names of the implementations, fastest first."""
        ...


class OpenBackend:
    """The operators of one device, until `close`."""

    def __init__(self, operators: Operators, close: Callable[[], None] = lambda: None) -> None:
        self._operators = operators
        self.close = close

    def operator(self, name: str, spec: Any) -> Operator:
        """The operator of that name with the attributes `spec`."""
        make: Callable[[Any], Operator] = getattr(self._operators, METHODS.get(name, name))
        return make(spec)

    def check_tier(self, tier: str) -> None:
        """Raise `InvalidArgument` for a tier that the backend does not have."""
        if tier not in self._operators.tiers:
            raise InvalidArgument(
                f"there is no tier {tier!r}; there is {', '.join(self._operators.tiers)}", param="tier"
            )


METHODS = {"onnx_attention": "attention"}
"""Methods that are not called as their operator is."""
ALL_OPERATORS: tuple[str, ...] = ("paged_attention", "group_query_attention", "onnx_attention", "tensor_scatter")


@dataclass(frozen=True, slots=True)
class Backend:
    """One line of the table. `open` raises why the backend does not run on this machine."""

    name: str
    open: Callable[[], OpenBackend]
    operators: tuple[str, ...] = ALL_OPERATORS


def _open_webgpu() -> OpenBackend:
    from pageloom.backends.webgpu.native import open_native_device  # noqa: PLC0415 - each needs packages of its own
    from pageloom.backends.webgpu.operators import WebGpuOperators  # noqa: PLC0415

    device = asyncio.run(open_native_device())
    return OpenBackend(WebGpuOperators(device), device.close)


def _open_cpu() -> OpenBackend:
    try:
        from pageloom.backends.cpu.operators import CpuOperators  # noqa: PLC0415
    except ImportError as error:
        raise NotSupported(
            f"the CPU backend needs numpy and ml_dtypes: pip install 'pageloom[check]' ({error})"
        ) from error
    return OpenBackend(CpuOperators())


def _open_cuda() -> OpenBackend:
    from pageloom.backends.cuda import CudaOperators  # noqa: PLC0415

    return OpenBackend(CudaOperators())


BACKENDS = (
    Backend("webgpu", _open_webgpu, operators=("paged_attention",)),
    Backend("cpu", _open_cpu),
    Backend("cuda", _open_cuda),
)


def find_backend(name: str) -> Backend:
    """The backend of that name. Raises `InvalidArgument` where there is none."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    known = ", ".join(backend.name for backend in BACKENDS)
    raise InvalidArgument(f"there is no backend {name!r}; there is {known}", param="backend")

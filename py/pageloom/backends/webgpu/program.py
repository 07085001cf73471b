"""Programs: WGSL templates with their parameters, and the compiled pipelines of one device."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from pageloom.backends.webgpu import templates
from pageloom.backends.webgpu.device import Buffer, Device, Pipeline

ParameterValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class ProgramKey:
    """A template's path below `wgsl/` and every parameter it takes, and nothing else; sorted by name."""

    template: str
    parameters: tuple[tuple[str, ParameterValue], ...]

    @classmethod
    def of(cls, template: str, **parameters: ParameterValue) -> ProgramKey:
        return cls(template, tuple(sorted(parameters.items())))

    def __str__(self) -> str:
        """The label of the program. It tells 1 from 1.0 and from True, which are equal in Python."""
        return f"{self.template}({', '.join(f'{name}={value!r}' for name, value in self.parameters)})"


@dataclass(frozen=True, slots=True)
class PlannedDispatch:
    """A dispatch before its program is compiled. The grid is an upper bound; the shader checks its bounds itself."""

    key: ProgramKey
    buffers: tuple[Buffer, ...]
    grid: tuple[int, int, int]
    label: str


class Programs(Protocol):
    """The compiled programs of one device."""

    async def pipeline(self, key: ProgramKey) -> Pipeline:
        """Render, compile and keep; two callers that ask for one key at once share one compilation."""
        ...


class ProgramCache:
    """`Programs` of one device. A program that failed to compile is tried again when it is next asked for."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._compiled: dict[str, Pipeline] = {}
        self._compiling: dict[str, asyncio.Task[Pipeline]] = {}

    def __len__(self) -> int:
        """The number of programs compiled so far."""
        return len(self._compiled)

    async def pipeline(self, key: ProgramKey) -> Pipeline:
        name = str(key)
        if name in self._compiled:
            return self._compiled[name]
        if name not in self._compiling:
            self._compiling[name] = asyncio.create_task(self._compile(key, name))
        # A caller that gives up must not take the compilation away from the others.
        return await asyncio.shield(self._compiling[name])

    async def _compile(self, key: ProgramKey, name: str) -> Pipeline:
        try:
            self._compiled[name] = await self._device.pipeline(templates.render(key), name)
        finally:
            del self._compiling[name]
        return self._compiled[name]

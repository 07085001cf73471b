"""The compiled programs of one device."""

from __future__ import annotations

import asyncio

from pageloom.backends.webgpu import templates
from pageloom.backends.webgpu.device import Device, Pipeline
from pageloom.backends.webgpu.program import ProgramKey


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

"""The native home on one software driver, for tests that load a model."""

from __future__ import annotations

from pageloom import native_home
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.native import open_native_device
from tests.native.conftest import ADAPTERS


class OneAdapter:
    """Opens the adapter of `driver`, a name of the `driver` fixture."""

    open_source = staticmethod(native_home.open_source)
    tokenizer_core = staticmethod(native_home.tokenizer_core)

    def __init__(self, driver: str) -> None:
        self._adapter = ADAPTERS[driver]

    async def open_device(self, **_: object) -> Device:
        return await open_native_device(adapter=self._adapter)

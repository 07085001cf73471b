"""Devices for the tests that need WebGPU: each runs on every software adapter that this machine has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

import pytest

from pageloom.backends.webgpu.native import NativeDevice, open_native_device
from pageloom.errors import NotSupported

ADAPTERS = {"swiftshader": "SwiftShader", "lavapipe": "llvmpipe"}


async def open_driver(
    driver: str, limits: Mapping[str, int] | None = None, without_features: tuple[str, ...] = ()
) -> NativeDevice:
    """A device on the software driver of this name; skips the test where the machine has none."""
    try:
        return await open_native_device(adapter=ADAPTERS[driver], limits=limits, without_features=without_features)
    except NotSupported as error:
        pytest.skip(f"{driver}: {error.message}")


@pytest.fixture(scope="session", params=sorted(ADAPTERS))
def driver(request: pytest.FixtureRequest) -> str:
    """The name of a software driver; a test that takes it runs once for each."""
    return str(request.param)


@pytest.fixture(scope="session")
def device(driver: str) -> Iterator[NativeDevice]:
    """A device shared by the tests of a run. A test that ends or limits its device takes `limited_device` instead."""
    device = asyncio.run(open_driver(driver))
    yield device
    device.close()


@pytest.fixture
def limited_device(driver: str) -> Iterator[Callable[..., Awaitable[NativeDevice]]]:
    """`await limited_device({"maxBufferSize": ...}, without_features=("shader-f16",))`: a device of the test's own."""
    opened: list[NativeDevice] = []

    async def open_one(limits: Mapping[str, int] | None = None, without_features: tuple[str, ...] = ()) -> NativeDevice:
        opened.append(await open_driver(driver, limits, without_features))
        return opened[-1]

    yield open_one
    for device in opened:
        device.close()

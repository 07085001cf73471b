"""Measuring on a device: seconds of a chain of dispatches, and the rates that bound them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pageloom.backends.webgpu.device import Device, Dispatch
from pageloom.backends.webgpu.program import ProgramKey, Programs

WARM_SECONDS = 0.3
"""From idle clocks the same dispatches may run several times slower."""
CHAIN_SECONDS = 0.02
LONGEST_CHAIN = 512
WORKGROUP = 256
READ_BYTES = 512 * 2**20
CHAINS, ROUNDS = 8, 256
RATE_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device reached: bytes read a second, f32 operations a second."""

    read: float
    compute: float


class Chain:
    """The same dispatches many times in one recording, as many as take `CHAIN_SECONDS`."""

    def __init__(self, device: Device, dispatches: Sequence[Dispatch]) -> None:
        self._device = device
        self._dispatches = list(dispatches)
        self._copies = 1
        self._recording = device.record(self._dispatches)

    async def warm_up(self) -> None:
        """Keep the device busy for `WARM_SECONDS` and settle how long the chain is."""
        started = time.perf_counter()
        await self.seconds()
        while True:
            seconds = await self.seconds()
            if self._copies * seconds < CHAIN_SECONDS and self._copies < LONGEST_CHAIN:
                self._copies *= 2
                self._recording = self._device.record(self._dispatches * self._copies)
            elif time.perf_counter() - started >= WARM_SECONDS:
                return

    async def seconds(self) -> float:
        """Of one run of the dispatches, by the device's clock where it has one and else by the host's."""
        started = time.perf_counter()
        measured = await self._device.time(self._recording)
        if measured is None:
            await self._device.idle()
            measured = time.perf_counter() - started
        return measured / self._copies


async def measure_rates(device: Device, programs: Programs) -> Rates:
    """The best of a few runs of kernels that only read, and only multiply and add."""
    limits = device.info.limits
    software = device.info.adapter_class == "software"
    size = min(READ_BYTES // (16 if software else 1), limits["maxStorageBufferBindingSize"], limits["maxBufferSize"])
    groups = 64 if software else 4096
    data = device.buffer(size & ~15, "data")
    sums = device.buffer(16 * WORKGROUP * groups, "sums")
    try:
        read = await programs.pipeline(ProgramKey.of("limits/read.wgsl.j2", workgroup=WORKGROUP))
        compute = await programs.pipeline(
            ProgramKey.of("limits/multiply_add.wgsl.j2", workgroup=WORKGROUP, chains=CHAINS, rounds=ROUNDS)
        )
        await device.settle()
        operations = 2 * 4 * CHAINS * ROUNDS * WORKGROUP * groups
        return Rates(
            read=data.size / await _least(device, Dispatch(read, (data, sums), (groups, 1, 1), "read")),
            compute=operations / await _least(device, Dispatch(compute, (sums,), (groups, 1, 1), "multiply and add")),
        )
    finally:
        data.destroy()
        sums.destroy()


async def _least(device: Device, dispatch: Dispatch) -> float:
    chain = Chain(device, [dispatch])
    await chain.warm_up()
    return min([await chain.seconds() for _ in range(RATE_REPEATS)])

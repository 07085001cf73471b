"""What `pageloom bench` measures, on a device."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pageloom.backends.webgpu.device import Dispatch
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.operators.tiers import TIERS
from pageloom.backends.webgpu.program import ProgramKey
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.commands.bench_calls import measure
from pageloom.commands.bench_device import CHAINS, Chain, measure_rates
from pageloom.commands.bench_shapes import Shape

DECODE = Shape(batch=2, num_heads=4, kv_num_heads=2, head_size=64, past=40)


@pytest.mark.parametrize(
    "shape",
    [Shape(1, 4, 2, 64, past=20, new=17), Shape(2, 4, 2, 64, past=40, cache="int8")],
    ids=str,
)
async def test_each_tier_is_measured_or_tells_why_not(device: NativeDevice, shape: Shape) -> None:
    measured = await measure(device, WebGpuOperators(device), shape, repeats=2)
    assert [one.tier for one in measured] == list(TIERS)
    for one in measured:
        assert bool(one.seconds) != bool(one.reason)
        assert len(one.seconds) in (0, 2)
        assert len(one.attention_seconds) == (len(one.seconds) if one.tier.startswith("direct") else 0)
        assert all(0 < seconds < 10 for seconds in one.seconds)
    assert any(one.seconds for one in measured)


async def test_a_device_without_a_clock_is_measured_by_the_hosts(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    device = await limited_device(without_features=("timestamp-query",))
    (measured,) = await measure(device, WebGpuOperators(device), DECODE, repeats=1, tiers=("direct-software",))
    assert 0 < measured.seconds[0] < 10


async def test_a_call_is_timed_alike_in_a_long_chain_and_a_short_one(device: NativeDevice) -> None:
    key = ProgramKey.of("limits/multiply_add.wgsl.j2", workgroup=64, chains=CHAINS, rounds=4096)
    pipeline = await ProgramCache(device).pipeline(key)
    sums = device.buffer(16 * 64 * 4)
    once = [Dispatch(pipeline, (sums,), (4, 1, 1))]
    chains = [Chain(device, once), Chain(device, once * 4)]
    for chain in chains:
        await chain.warm_up()
    rounds = [[await chain.seconds() for chain in chains] for _ in range(10)]
    short, long = (min(seconds) for seconds in zip(*rounds, strict=True))
    assert 1.5 < long / short < 12
    sums.destroy()


async def test_the_rates_are_those_of_a_computer(device: NativeDevice) -> None:
    rates = await measure_rates(device, ProgramCache(device))
    assert 1e6 < rates.read < 1e14
    assert 1e6 < rates.compute < 1e16

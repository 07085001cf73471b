"""What the page's worker starts to measure the operators on the browser's GPU, as JSON text.

The shapes are those of `web/src/protocol.js`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pageloom.backends.webgpu.browser import BrowserDevice, open_browser_device
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.commands.bench_calls import measure
from pageloom.commands.bench_device import Rates, measure_rates
from pageloom.commands.bench_shapes import QUICK, SMALL, Shape
from pageloom.conformance.adapter import adapter_fields
from pageloom.errors import PageloomError
from pageloom.tab.bridge import use_bridge

REPEATS = 5


async def start(bridge: Any, options: str) -> BenchSession | str:
    """Open a device and measure its rates. `options` has `prefer`, an adapter class or null.

    Returns the session, or the error object that says why there is none.
    """
    use_bridge(bridge)
    try:
        device = await open_browser_device(bridge, prefer=json.loads(options)["prefer"])
        programs = ProgramCache(device)
        return BenchSession(device, programs, await measure_rates(device, programs))
    except PageloomError as error:
        return json.dumps(error.to_openai()["error"])


class BenchSession:
    """One device in the worker, and what of it limits a call."""

    def __init__(self, device: BrowserDevice, programs: ProgramCache, rates: Rates) -> None:
        self._device = device
        self._operators = WebGpuOperators(device, programs)
        self._rates = rates
        self._shapes: Sequence[Shape] = SMALL if device.info.adapter_class == "software" else QUICK

    def describe(self) -> str:
        """The adapter, its rates, the clock that times, and the shapes that are measured."""
        has_clock = "timestamp-query" in self._device.info.features
        return json.dumps(
            {
                "adapter": adapter_fields(self._device.info),
                "rates": asdict(self._rates),
                "clock": "gpu" if has_clock else "host",
                "shapes": [str(shape) for shape in self._shapes],
            }
        )

    async def run(self, index: int) -> str:
        """The rows of a shape, one a tier, or the error object of what ended the device."""
        try:
            measured = await measure(self._device, self._operators, self._shapes[index], REPEATS)
            return json.dumps({"rows": [one.to_fields(self._rates) for one in measured]})
        except PageloomError as error:
            return json.dumps(error.to_openai())

    def close(self) -> None:
        self._device.close()

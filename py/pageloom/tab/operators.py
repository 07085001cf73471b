"""What the page's worker starts to hold the operators against their reference, as JSON text.

The shapes are those of `web/src/protocol.js`.
"""

from __future__ import annotations

import json
from typing import Any

from pageloom.attention.vectors import read_vector
from pageloom.backends.webgpu.browser import BrowserDevice, open_browser_device
from pageloom.conformance.adapter import adapter_fields
from pageloom.conformance.baseline import BASELINE_LIMITS, BASELINE_WITHOUT
from pageloom.conformance.run import CaseRunner
from pageloom.errors import PageloomError
from pageloom.tab.bridge import use_bridge


async def start(bridge: Any, options: str) -> CheckSession | str:
    """Open a device. `options` has `prefer`, an adapter class or null; `tier`, a name or null; `baseline`, whether to
    use the least that any adapter offers.

    Returns the session, or the error object that says why there is none.
    """
    use_bridge(bridge)
    given = json.loads(options)
    try:
        device = await open_browser_device(
            bridge,
            prefer=given["prefer"],
            limits=BASELINE_LIMITS if given["baseline"] else None,
            without_features=BASELINE_WITHOUT if given["baseline"] else (),
        )
        return CheckSession(device, CaseRunner(device, given["tier"]))
    except PageloomError as error:
        return json.dumps(error.to_openai()["error"])


class CheckSession:
    """One device in the worker."""

    def __init__(self, device: BrowserDevice, runner: CaseRunner) -> None:
        self._device = device
        self._runner = runner

    def describe(self) -> str:
        """The adapter."""
        return json.dumps(adapter_fields(self._device.info))

    async def run(self, file: Any) -> str:
        """The report of the case in a file's bytes (a Uint8Array), or the error object of what ended the device."""
        try:
            report = await self._runner.run(read_vector(file.to_bytes()))
            return json.dumps({"report": report.to_fields()}, allow_nan=False)
        except PageloomError as error:
            return json.dumps(error.to_openai())

    def close(self) -> None:
        self._device.close()

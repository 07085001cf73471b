"""What the page's worker asks of a model file before it loads it, as JSON text.

The shapes are those of `web/src/protocol.js`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pageloom.backends.webgpu.browser import JsSource, device_info
from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.fit import fit_cache, fit_weights
from pageloom.model.decoder import ModelDescription, load_model_description
from pageloom.session import error_object
from pageloom.tab.session import runner_settings


async def inspect(source: Any, adapter: Any) -> Inspection | str:
    """Read the header of a JavaScript source, for a device of `adapter` (as `describeAdapter` tells it).

    Returns what it says, or the error object of why the model cannot run here.
    """
    try:
        return Inspection(await load_model_description(JsSource(source)), device_info(adapter))
    except Exception as error:
        return json.dumps(error_object(error))


class Inspection:
    """A described model and the device that would run it."""

    def __init__(self, description: ModelDescription, info: DeviceInfo) -> None:
        self._description = description
        self._info = info
        self._weights = fit_weights(info, description)

    def facts(self) -> str:
        """What does not depend on settings."""
        description = self._description
        return json.dumps(
            {
                "name": description.name,
                "architecture": description.gguf.metadata.text("general.architecture"),
                "context_length": description.decoder.context_length,
                "weights": asdict(self._weights),
                "warnings": list(description.warnings),
            }
        )

    def fit(self, options: str) -> str:
        """The KV pool that these settings would make, or the error object of why they cannot be."""
        try:
            settings = runner_settings(json.loads(options))
            return json.dumps({"cache": asdict(fit_cache(self._info, self._description, settings))})
        except Exception as error:
            return json.dumps({"error": error_object(error)})

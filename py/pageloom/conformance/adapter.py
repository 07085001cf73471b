"""The adapter that a run was made on, as JSON."""

from __future__ import annotations

from typing import Any

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.conformance.baseline import BASELINE_LIMITS


def adapter_fields(info: DeviceInfo) -> dict[str, Any]:
    """What the page and the commands show of it, its optional features and the limits that programs depend on."""
    return {
        "vendor": info.vendor,
        "architecture": info.architecture,
        "description": info.description,
        "adapter_class": info.adapter_class,
        "f16": info.has_f16,
        "home": info.home,
        "features": sorted(info.features),
        "limits": {name: info.limits[name] for name in BASELINE_LIMITS},
    }

"""Whether a device can run a program, and grids of more workgroups than one dimension holds: pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.errors import NotSupported


@dataclass(frozen=True, slots=True)
class ProgramNeeds:
    """What a program takes from the device; a field left at its default needs nothing in particular.

    `workgroup_size` counts invocations a dimension, `workgroup_bytes` is the sum of its `var<workgroup>`,
    `binding_bytes` are the sizes of its storage buffers, and `grid` counts workgroups a dimension.
    """

    workgroup_size: tuple[int, int, int] = (1, 1, 1)
    workgroup_bytes: int = 0
    binding_bytes: Sequence[int] = ()
    grid: tuple[int, int, int] = (1, 1, 1)
    features: frozenset[str] = frozenset()


def why_not(needs: ProgramNeeds, info: DeviceInfo | None) -> str | None:
    """The reason why a program with these needs cannot run on this device, or None where it can.

    The reason names the limit as WebGPU does, what is needed and what the device has. `info` is None with no adapter.
    """
    if info is None:
        return "there is no WebGPU adapter"
    missing = sorted(needs.features - info.features)
    if missing:
        return f"the device lacks {', '.join(missing)}"
    x, y, z = needs.workgroup_size
    asked = {
        "maxComputeInvocationsPerWorkgroup": x * y * z,
        "maxComputeWorkgroupSizeX": x,
        "maxComputeWorkgroupSizeY": y,
        "maxComputeWorkgroupSizeZ": z,
        "maxComputeWorkgroupStorageSize": needs.workgroup_bytes,
        "maxStorageBuffersPerShaderStage": len(needs.binding_bytes),
        "maxStorageBufferBindingSize": max(needs.binding_bytes, default=0),
        "maxBufferSize": max(needs.binding_bytes, default=0),
        "maxComputeWorkgroupsPerDimension": max(needs.grid),
    }
    for name, value in asked.items():
        if value > info.limits[name]:
            return f"{name} is {info.limits[name]}, and {value} is needed"
    return None


def require(needs: ProgramNeeds, info: DeviceInfo | None, what: str) -> None:
    """Raise `NotSupported` with the reason where the device cannot run the program; `what` names it to the user."""
    reason = why_not(needs, info)
    if reason is not None:
        raise NotSupported(f"{what} cannot run on this device: {reason}")


def split_grid(num_groups: int, per_dimension: int = 65535) -> tuple[int, int, int]:
    """A grid of at least `num_groups` workgroups with no dimension above `per_dimension`, and few to spare.

    `wgsl/lib/grid.wgsl.j2` turns a workgroup's place in it into a linear index; the shader skips those past the end.
    Raises `NotSupported` beyond `per_dimension` cubed.
    """
    if num_groups > per_dimension**3:
        raise NotSupported(f"{num_groups} workgroups are more than a grid of {per_dimension} a dimension holds")
    y = z = 1
    if num_groups > per_dimension**2:
        z = -(-num_groups // per_dimension**2)
    if num_groups > per_dimension * z:
        y = -(-num_groups // (per_dimension * z))
    return -(-num_groups // (y * z)), y, z

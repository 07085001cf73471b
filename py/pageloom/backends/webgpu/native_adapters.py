"""Which of Dawn's adapters is opened, and with which limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pageloom.backends.webgpu.device import INTEGER_DOTS, AdapterClass, MatrixShape
from pageloom.errors import InvalidArgument, NotSupported

# From most to least wanted. Dawn does not know what kind some GPUs are of.
ADAPTER_TYPES = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")


def adapter_class(adapter: Any) -> AdapterClass:
    return "software" if adapter.info["adapter_type"] == "CPU" else "gpu"


def choose_adapter(found: Sequence[Any], prefer: AdapterClass | None, name: str | None) -> Any:
    """The fastest kind of adapter in `found`: of the class `prefer`, and with `name` in its summary, where given.

    Raises `NotSupported`, with what is there, where none is left.
    """
    allowed = [
        adapter
        for adapter in found
        if "core-features-and-limits" in adapter.features
        and prefer in (None, adapter_class(adapter))
        and (name or "").lower() in adapter.summary.lower()
    ]
    if not allowed:
        wanted = " ".join(filter(None, [prefer, f"named {name!r}" if name else ""])) or "of any kind"
        present = "; ".join(adapter.summary for adapter in found) or "none"
        raise NotSupported(
            f"no WebGPU adapter {wanted} (present: {present}); install a Vulkan driver, or Chromium, whose software "
            "driver is used where there is no GPU"
        )
    return min(allowed, key=lambda adapter: ADAPTER_TYPES.index(adapter.info["adapter_type"]))


def webgpu_limits(limits: Mapping[str, int]) -> dict[str, int]:
    """Limits by WebGPU's names, from wgpu-py's: `max-texture-dimension-1d` becomes `maxTextureDimension1D`."""

    def renamed(name: str) -> str:
        first, *rest = name.split("-")
        return first + "".join(part.upper() if part[0].isdigit() else part.capitalize() for part in rest)

    return {renamed(name): value for name, value in limits.items()}


def subgroup_sizes(adapter: Any) -> tuple[int, int]:
    """Threads of the smallest and of the largest subgroup of this adapter."""
    # The package's own `info` has WebGPU's defaults for every adapter; Dawn knows better.
    from wgpudawn.backends.dawn._ffi import ffi, lib  # noqa: PLC0415 - optional

    info = ffi.new("WGPUAdapterInfo *")
    lib.wgpuAdapterGetInfo(adapter._internal, info)
    sizes = int(info.subgroupMinSize), int(info.subgroupMaxSize)
    lib.wgpuAdapterInfoFreeMembers(info[0])
    return sizes


def matrix_shapes(adapter: Any) -> frozenset[MatrixShape]:
    """The products of matrices that subgroups of this adapter compute."""
    from wgpudawn.backends.dawn.extras import get_adapter_properties  # noqa: PLC0415 - optional

    configs = get_adapter_properties(adapter).get("subgroup_matrix_configs", ())
    return frozenset((c["component_type"], c["result_component_type"], c["m"], c["n"], c["k"]) for c in configs)


def language_features() -> frozenset[str]:
    """The extensions of WGSL that the backend has a use for and Dawn has."""
    # The package's own `wgsl_language_features` is always empty.
    from wgpudawn.backends.dawn._ffi import lib  # noqa: PLC0415 - optional
    from wgpudawn.backends.dawn._helpers import get_wgpu_instance  # noqa: PLC0415 - optional

    instance, feature = get_wgpu_instance(), lib.WGPUWGSLLanguageFeatureName_Packed4x8IntegerDotProduct
    return frozenset({INTEGER_DOTS} if lib.wgpuInstanceHasWGSLLanguageFeature(instance, feature) else ())


def check_limits(lowered: Mapping[str, int], offered: Mapping[str, int]) -> None:
    """Raise `InvalidArgument` for a limit that WebGPU does not have or the adapter does not reach."""
    for name, value in lowered.items():
        if name not in offered:
            raise InvalidArgument(f"{name!r} is no WebGPU limit; known: {', '.join(sorted(offered))}", param="limits")
        if name.startswith("max") and not 0 < value <= offered[name]:
            raise InvalidArgument(f"{name} = {value}: the adapter allows 1 to {offered[name]}", param="limits")

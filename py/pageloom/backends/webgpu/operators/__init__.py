"""Operators of ONNX on a WebGPU device, each from its attributes: `WebGpuOperators(device).paged_attention(spec)`."""

from __future__ import annotations

from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.operators.paged_attention import WebGpuPagedAttention
from pageloom.backends.webgpu.operators.tiers import TIERS, Tier
from pageloom.backends.webgpu.program import Programs
from pageloom.backends.webgpu.program_cache import ProgramCache


class WebGpuOperators:
    """The operators of one device, which stays the caller's. Operators of one object share compiled programs."""

    tiers: tuple[Tier, ...] = TIERS
    """Fastest first."""

    def __init__(self, device: Device, programs: Programs | None = None) -> None:
        self._device = device
        self._programs = programs or ProgramCache(device)

    def paged_attention(self, spec: PagedAttentionSpec) -> WebGpuPagedAttention:
        """`com.microsoft.PagedAttention` with the attributes `spec`; picks and compiles nothing yet."""
        return WebGpuPagedAttention(self._device, self._programs, spec)

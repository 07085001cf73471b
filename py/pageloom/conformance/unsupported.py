"""What no WebGPU device is asked: a case is skipped for one of these needs and for nothing else."""

from __future__ import annotations

from collections.abc import Collection

WEBGPU_LACKS = {
    "bfloat16": "WGSL has no bfloat16",
    "float8e4m3fn_cache": "WGSL has no 8-bit floating point, and no program here unpacks it",
}


def why_skipped(needs: Collection[str]) -> str:
    """The reason why a case with these needs is not run on WebGPU, or ""."""
    return "; ".join(reason for need, reason in WEBGPU_LACKS.items() if need in needs)

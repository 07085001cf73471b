"""The least that any WebGPU adapter offers, to run the matrix as on the smallest of them."""

from __future__ import annotations

BASELINE_LIMITS = {
    "maxBufferSize": 256 * 2**20,
    "maxStorageBufferBindingSize": 128 * 2**20,
    "maxStorageBuffersPerShaderStage": 8,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
    "maxComputeWorkgroupsPerDimension": 65535,
}
"""The default limits of the WebGPU specification, section 3.6.2, that programs here depend on."""
BASELINE_WITHOUT = ("shader-f16", "subgroups", "timestamp-query")
"""Optional features, none of which is asked for."""

"""The buffers of one recorded call: those it uploads or allocates, freed together."""

from __future__ import annotations

from collections.abc import Mapping

from pageloom.attention.tensors import Tensor, TensorInfo
from pageloom.backends.webgpu.device import Buffer, Device
from pageloom.backends.webgpu.operators.operands import DeviceTensor, Operand
from pageloom.errors import NotSupported

SMALLEST = 16
"""Bytes of the smallest buffer: an array of four-component vectors must bind one."""


class Workspace:
    """Buffers that a call owns."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._owned: list[Buffer] = []

    def scratch(self, name: str, size: int) -> Buffer:
        """A zero-filled buffer of at least `size` bytes."""
        check_binding(self._device, name, size)
        self._owned.append(self._device.buffer(max(SMALLEST, size), name))
        return self._owned[-1]

    def tensor(self, name: str, info: TensorInfo) -> DeviceTensor:
        """A new tensor of zeros."""
        return DeviceTensor(self.scratch(name, info.num_bytes), info.dtype, info.shape)

    def place(self, name: str, operand: Operand) -> DeviceTensor:
        """`operand` on the device: itself, or a copy of host memory."""
        if isinstance(operand, Tensor):
            placed = self.tensor(name, operand.info)
            self._device.write(placed.buffer, 0, operand.data)
            return placed
        check_binding(self._device, name, operand.buffer.size)
        return operand

    def release(self, *kept: DeviceTensor) -> None:
        """Free everything but the buffers of `kept`."""
        keep = {id(tensor.buffer) for tensor in kept}
        for buffer in self._owned:
            if id(buffer) not in keep:
                buffer.destroy()
        self._owned = []


def why_not_bind(device: Device, sizes: Mapping[str, int]) -> str | None:
    """The reason why no shader of this device can bind buffers of these sizes whole, or None."""
    limits = device.info.limits
    for name, size in sizes.items():
        for limit in ("maxStorageBufferBindingSize", "maxBufferSize"):
            if size > limits[limit]:
                return f"{name} takes {size} bytes, and {limit} is {limits[limit]}"
    return None


def check_binding(device: Device, name: str, size: int) -> None:
    """Raise `NotSupported` for a tensor or scratch that no shader of this device can bind whole."""
    if (reason := why_not_bind(device, {name: size})) is not None:
        raise NotSupported(f"{reason}: split the batch, or its cache, over several calls", param=name)

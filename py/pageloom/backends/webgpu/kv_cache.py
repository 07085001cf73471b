"""The paged KV cache on the device: for each layer a key and a value buffer.

Each is `[num_blocks, block_size, kv_num_heads, head_size]`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pageloom.backends.webgpu.device import Buffer, Device, DeviceInfo
from pageloom.engine.runner_settings import KvDtype
from pageloom.errors import CapacityExceeded, InvalidArgument
from pageloom.model.layer_ops import Decoder

BYTES_PER_ELEMENT: dict[KvDtype, int] = {"float32": 4, "float16": 2, "float8e4m3fn": 1}
SHORT_NAMES: dict[KvDtype, str] = {"float32": "f32", "float16": "f16", "float8e4m3fn": "f8"}
MIN_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class PagedKvCache:
    """`keys[layer]` and `values[layer]` are the buffers of that layer."""

    keys: tuple[Buffer, ...]
    values: tuple[Buffer, ...]
    num_blocks: int
    block_size: int
    dtype: KvDtype = "float16"

    @property
    def num_bytes(self) -> int:
        return sum(buffer.size for buffer in (*self.keys, *self.values))

    def destroy(self) -> None:
        for buffer in (*self.keys, *self.values):
            buffer.destroy()


def check_block_size(block_size: int) -> None:
    """Raise `InvalidArgument` unless `block_size` is a power of two of at least 16."""
    if block_size < MIN_BLOCK_SIZE or block_size & (block_size - 1):
        raise InvalidArgument(
            f"block size {block_size} is not allowed; take a power of two from {MIN_BLOCK_SIZE}", param="block_size"
        )


def block_bytes(decoder: Decoder, block_size: int, dtype: KvDtype = "float16") -> int:
    """Bytes of one block in one layer's key (or value) buffer."""
    return block_size * decoder.kv_num_heads * decoder.head_size * BYTES_PER_ELEMENT[dtype]


def _largest_buffer(info: DeviceInfo) -> int:
    return min(info.limits["maxStorageBufferBindingSize"], info.limits["maxBufferSize"])


def blocks_within(
    info: DeviceInfo, decoder: Decoder, block_size: int, budget_bytes: int, dtype: KvDtype = "float16"
) -> int:
    """How many blocks of all layers fit `budget_bytes` and this device's largest binding.

    Raises `CapacityExceeded` where not even one does.
    """
    one, largest_buffer = block_bytes(decoder, block_size, dtype), _largest_buffer(info)
    blocks = min(budget_bytes // (2 * decoder.num_layers * one), largest_buffer // one)
    if blocks < 1:
        raise CapacityExceeded(
            f"one KV block takes {2 * decoder.num_layers * one} bytes over {decoder.num_layers} layers; the budget is "
            f"{budget_bytes} bytes and a binding holds {largest_buffer}",
            param="kv_memory",
        )
    return blocks


def check_num_blocks(
    info: DeviceInfo, decoder: Decoder, block_size: int, num_blocks: int, dtype: KvDtype = "float16"
) -> None:
    """Raise `CapacityExceeded` where a layer's blocks are more than this device's largest binding."""
    most = _largest_buffer(info) // block_bytes(decoder, block_size, dtype)
    if num_blocks > most:
        raise CapacityExceeded(
            f"{num_blocks} KV blocks are more than the {most} that a binding of this device holds", param="num_blocks"
        )


def allocate_kv_cache(
    device: Device, decoder: Decoder, num_blocks: int, block_size: int, dtype: KvDtype = "float16"
) -> PagedKvCache:
    """Make the buffers; `await device.settle()` then says whether the device had room for them."""
    size = num_blocks * block_bytes(decoder, block_size, dtype)

    def buffers(kind: str) -> tuple[Buffer, ...]:
        return tuple(device.buffer(size, f"{kind} cache {layer}") for layer in range(decoder.num_layers))

    return PagedKvCache(buffers("key"), buffers("value"), num_blocks, block_size, dtype)

"""PagedAttention calls on a device's own tensors, tier by tier."""

from __future__ import annotations

import array
import random
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.tensors import DType, TensorInfo
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.operators.operands import DeviceTensor
from pageloom.backends.webgpu.operators.tiers import TIERS, Tier
from pageloom.commands.bench_device import Chain, Rates
from pageloom.commands.bench_shapes import PEER_SECONDS, Shape
from pageloom.errors import DeviceLost, NotSupported, OutOfMemory

WRITE_BYTES = 2**22
"""Bytes of random data that fill a tensor again and again."""
INT8_SCALE = 0.02
CALL, ATTENTION = "call", "attention"
"""What is measured: all dispatches of a call, and those whose label begins so."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One shape on one tier: `seconds` of each repeat of one call, or why there is none.

    A call prepares its metadata and appends K and V before it attends; `attention_seconds` are those of the programs
    that attend alone, which is what a decoder's layers repeat. They are there where a tier attends to pages in place.
    """

    shape: Shape
    tier: Tier
    seconds: tuple[float, ...] = ()
    reason: str = ""
    attention_seconds: tuple[float, ...] = ()

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def attention_median(self) -> float | None:
        return statistics.median(self.attention_seconds) if self.attention_seconds else None

    @property
    def spread(self) -> float:
        """The distance of the slowest repeat from the quickest, over the median."""
        return (max(self.seconds) - min(self.seconds)) / statistics.median(self.seconds) if self.seconds else 0.0

    def to_fields(self, rates: Rates) -> dict[str, Any]:
        """As JSON has it, with the limit in seconds that a device of these rates sets."""
        return {
            "shape": str(self.shape),
            "tier": self.tier,
            "seconds": self.seconds,
            "attention_seconds": self.attention_seconds,
            "reason": self.reason,
            "limit": self.shape.limit_seconds(rates.read, rates.compute),
            "bytes": self.shape.num_bytes,
            "operations": self.shape.num_operations,
            "peer_seconds": PEER_SECONDS.get(self.shape),
        }


async def measure(
    device: Device, operators: WebGpuOperators, shape: Shape, repeats: int, tiers: Sequence[Tier] = TIERS
) -> list[Measured]:
    """One shape on each tier, the tiers in turns so that what disturbs one disturbs all."""
    quantized = shape.cache == "int8"
    quant: Any = "PER_TENSOR" if quantized else "NONE"
    spec = PagedAttentionSpec(
        num_heads=shape.num_heads, kv_num_heads=shape.kv_num_heads, k_quant_type=quant, v_quant_type=quant
    )
    operator = operators.paged_attention(spec)
    reasons: dict[Tier, str] = {}
    chains: dict[tuple[Tier, str], Chain] = {}
    seconds: dict[tuple[Tier, str], list[float]] = {(tier, part): [] for tier in tiers for part in (CALL, ATTENTION)}
    calls = []
    with _tensors(device, shape) as tensors:
        inputs: dict[str, Any] = {
            **tensors,
            "attention_metadata": array.array("i", [shape.new, shape.past + shape.new]),
        }
        try:
            for tier in tiers:
                try:
                    calls.append(await operator.record(tier=tier, **inputs))
                    commands = calls[-1].commands
                    attention = [command for command in commands if command.label.startswith(ATTENTION)]
                    for part, dispatches in ((CALL, commands), (ATTENTION, attention)):
                        if dispatches:
                            chains[tier, part] = Chain(device, dispatches)
                            await chains[tier, part].warm_up()
                except DeviceLost:
                    raise
                except (NotSupported, OutOfMemory) as error:
                    reasons[tier] = error.message
                    chains = {key: chain for key, chain in chains.items() if key[0] != tier}
            for _ in range(repeats):
                for key, chain in chains.items():
                    seconds[key].append(await chain.seconds())
        finally:
            for call in calls:
                call.release()
    return [
        Measured(shape, tier, tuple(seconds[tier, CALL]), reasons.get(tier, ""), tuple(seconds[tier, ATTENTION]))
        for tier in tiers
    ]


@dataclass(slots=True)
class _Filler:
    """Random bytes for tensors of any size: halves between -2 and 2, or int8 codes."""

    device: Device
    placed: list[DeviceTensor] = field(default_factory=list)

    def tensor(self, name: str, dtype: DType, shape: tuple[int, ...]) -> DeviceTensor:
        info = TensorInfo(dtype, shape)
        buffer = self.device.buffer(info.num_bytes, name)
        self.placed.append(DeviceTensor(buffer, dtype, shape))
        noise = _noise(dtype)
        for start in range(0, info.num_bytes, WRITE_BYTES):
            self.device.write(buffer, start, memoryview(noise)[: info.num_bytes - start])
        return self.placed[-1]

    def values(self, name: str, dtype: DType, shape: tuple[int, ...], data: array.array[Any]) -> DeviceTensor:
        buffer = self.device.buffer(TensorInfo(dtype, shape).num_bytes, name)
        self.device.write(buffer, 0, data)
        self.placed.append(DeviceTensor(buffer, dtype, shape))
        return self.placed[-1]


@contextmanager
def _tensors(device: Device, shape: Shape) -> Iterator[dict[str, DeviceTensor]]:
    """The inputs of a call on the device, blocks in random order."""
    blocks_each = -(-(shape.past + shape.new) // shape.block_size)
    num_blocks = shape.batch * blocks_each
    cache_shape = (num_blocks, shape.block_size, shape.kv_num_heads, shape.head_size)
    kv_width = shape.kv_num_heads * shape.head_size
    table = list(range(num_blocks))
    random.Random(0).shuffle(table)
    filler = _Filler(device)
    try:
        tensors = {
            "query": filler.tensor("query", "float16", (shape.num_tokens, shape.num_heads * shape.head_size)),
            "key": filler.tensor("key", "float16", (shape.num_tokens, kv_width)),
            "value": filler.tensor("value", "float16", (shape.num_tokens, kv_width)),
            "key_cache": filler.tensor("key_cache", shape.cache, cache_shape),
            "value_cache": filler.tensor("value_cache", shape.cache, cache_shape),
            "cumulative_sequence_length": filler.values(
                "cumulative_sequence_length",
                "int32",
                (shape.batch + 1,),
                array.array("i", range(0, shape.num_tokens + 1, shape.new)),
            ),
            "past_seqlens": filler.values(
                "past_seqlens", "int32", (shape.batch,), array.array("i", [shape.past] * shape.batch)
            ),
            "block_table": filler.values("block_table", "int32", (shape.batch, blocks_each), array.array("i", table)),
        }
        if shape.cache == "int8":
            for name in ("k_scale", "v_scale"):
                tensors[name] = filler.values(name, "float32", (1,), array.array("f", [INT8_SCALE]))
        yield tensors
    finally:
        for tensor in filler.placed:
            tensor.buffer.destroy()


def _noise(dtype: DType) -> bytes:
    noise = bytearray(random.Random(1).randbytes(WRITE_BYTES))
    if dtype == "float16":
        # The exponent of a half is in bits 2 to 6 of its high byte: with the highest cleared no number is 2 or more.
        noise[1::2] = bytes(byte & 0xBF for byte in noise[1::2])
    return bytes(noise)

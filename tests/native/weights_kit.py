"""Random GGUF tensors, steps and error budgets for the tests of the linear programs."""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np

from pageloom.backends.webgpu.device import Buffer, Device, Dispatch
from pageloom.backends.webgpu.program import PlannedDispatch
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.step_layout import HEADER
from pageloom.model.gguf import TensorInfo
from pageloom.model.quantization import FORMATS

BLOCKS = {block.name: block for block in FORMATS.values()}
HALF_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}  # fmt: skip
"""Byte offsets of the f16 scales and minimums of a block; everything else in a block may be any bits."""


class BytesSource:
    """A `RangedSource` over bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size(self) -> int:
        return len(self.data)

    async def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def random_tensor(rng: np.random.Generator, name: str, rows: int, columns: int) -> np.ndarray:
    """uint8[rows, bytes a row]: every bit pattern of the codes, scales of the sizes that models have."""
    block = BLOCKS[name]
    blocks = columns // block.elements
    if name in ("F32", "F16", "BF16"):
        values = (0.05 * rng.standard_normal((rows, columns))).astype(np.float32)
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType[name]).view(np.uint8)
    raw = rng.integers(0, 256, (rows, blocks, block.bytes), dtype=np.uint8)
    for offset in HALF_FIELDS[name]:
        scales = (rng.uniform(0.001, 0.02, (rows, blocks)) * rng.choice([-1, 1], (rows, blocks))).astype(np.float16)
        raw[:, :, offset : offset + 2] = scales[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


def dequantized(name: str, raw: np.ndarray) -> np.ndarray:
    """float64[rows, columns], by the `gguf` package."""
    data = raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name]).astype(np.float64)


def as_source(tensors: list[tuple[str, np.ndarray]]) -> tuple[BytesSource, list[TensorInfo]]:
    """A source that holds the tensors (format, raw rows) one after the other at odd places, and where they lie."""
    data = b"\xff" * 6
    infos = []
    for index, (name, raw) in enumerate(tensors):
        block = BLOCKS[name]
        shape = (raw.shape[0], raw.shape[1] // block.bytes * block.elements)
        infos.append(TensorInfo(f"tensor{index}", shape, block, len(data), raw.nbytes))
        data += raw.tobytes() + b"\xff" * 2
    return BytesSource(data), infos


def step_words(*, num_tokens: int = 0, **arrays: list[int]) -> np.ndarray:
    """int32 words of a step buffer with these arrays; `num_logits_rows` is the length of LOGITS_ROWS."""
    header = dict.fromkeys(HEADER, 0)
    header["NUM_TOKENS"] = num_tokens
    header["NUM_LOGITS_ROWS"] = len(arrays.get("LOGITS_ROWS", ()))
    words: list[int] = []
    for name, values in arrays.items():
        header[name] = len(HEADER) + len(words)
        words += values
    return np.array([header[name] for name in HEADER] + words, np.int32)


@dataclass
class Bench:
    """A device with its programs, and arrays on it."""

    device: Device
    programs: ProgramCache

    def put(self, values: np.ndarray, label: str = "") -> Buffer:
        buffer = self.device.buffer(values.nbytes, label)
        self.device.write(buffer, 0, np.ascontiguousarray(values))
        return buffer

    async def get(self, buffer: Buffer, shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(await self.device.read(buffer, 0, size), dtype).reshape(shape)

    async def run(self, planned: list[PlannedDispatch]) -> None:
        dispatches = [
            Dispatch(await self.programs.pipeline(one.key), one.buffers, one.grid, one.label) for one in planned
        ]
        self.device.submit(self.device.record(dispatches))

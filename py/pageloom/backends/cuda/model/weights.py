"""A decoder's weights on the device: matrices in float16, dequantised once, and vectors in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from pageloom.errors import BadModelFile
from pageloom.model.decoder import ModelDescription
from pageloom.model.gguf import TensorInfo
from pageloom.model.layer_ops import Linear, matrix_names, vector_names
from pageloom.model.source import RangedSource
from pageloom.progress import OnProgress, Progress, ignore_progress

CHUNK_BYTES = 8 * 2**20
"""How much of the file is held beside the weights while they are loaded."""
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`matrices` by the GGUF names of their parts, float16 `[rows of all parts, columns]`; `biases`, of those that have
    some, by the same names, float32 `[rows]`; `vectors` by name, float32.

    A matrix that several operations name is held once.
    """

    matrices: dict[Names, torch.Tensor]
    biases: dict[Names, torch.Tensor]
    vectors: dict[str, torch.Tensor]

    @property
    def num_bytes(self) -> int:
        held = (self.matrices, self.biases, self.vectors)
        return sum(tensor.nbytes for tensors in held for tensor in tensors.values())

    def clear(self) -> None:
        """Give the memory back."""
        for tensors in (self.matrices, self.biases, self.vectors):
            tensors.clear()


async def load_decoder_weights(
    source: RangedSource,
    description: ModelDescription,
    device: torch.device,
    on_progress: OnProgress = ignore_progress,
) -> DecoderWeights:
    """Read every weight and dequantise it to the device.

    Raises `BadModelFile` for numbers that are not finite or that float16 cannot hold, and what the source raises.
    """
    tensors, ops = description.gguf.tensors, description.decoder.ops
    matrices = list(dict.fromkeys(names for op in ops if (names := matrix_names(op))))
    vectors = list(dict.fromkeys(name for op in ops for name in vector_names(op)))
    with_biases = [op for op in ops if isinstance(op, Linear) and any(op.biases)]
    total = sum(tensors[name].size for names in [*matrices, vectors] for name in names)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        on_progress(Progress("weights", done, total))

    async def matrix(names: Names) -> torch.Tensor:
        parts = [tensors[name] for name in names]
        joined = torch.empty((sum(part.shape[0] for part in parts), parts[0].shape[1]), dtype=torch.float16)
        first = 0
        for part in parts:
            await _read(source, part, joined[first : first + part.shape[0]], on_bytes)
            first += part.shape[0]
        return joined.to(device)

    async def vector(name: str) -> torch.Tensor:
        values = torch.empty(tensors[name].shape, dtype=torch.float32)
        await _read(source, tensors[name], values[None], on_bytes)
        return values.to(device)

    def bias(op: Linear) -> torch.Tensor:
        parts = zip(op.weights, op.biases, strict=True)
        return torch.cat(
            [held[name] if name else torch.zeros(tensors[weight].shape[0], device=device) for weight, name in parts]
        )

    held = {name: await vector(name) for name in vectors}
    return DecoderWeights(
        {names: await matrix(names) for names in matrices}, {op.weights: bias(op) for op in with_biases}, held
    )


async def _read(
    source: RangedSource, tensor: TensorInfo, target: torch.Tensor, on_bytes: Callable[[int], None]
) -> None:
    """Fill `target` `[rows, columns]` with the values of `tensor`, some rows at a time."""
    rows = target.shape[0]
    row_bytes = tensor.size // rows
    step = max(1, CHUNK_BYTES // row_bytes)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        data = await source.read(tensor.offset + first * row_bytes, count * row_bytes)
        stored = np.frombuffer(data, np.uint8).reshape(count, row_bytes)
        values = dequantize(stored, GGMLQuantizationType(tensor.format.type_id)).astype(np.float32)
        target[first : first + count] = torch.from_numpy(values)
        if not torch.isfinite(target[first : first + count]).all():
            raise BadModelFile(
                f"{tensor.name} holds a number that is not finite as {target.dtype}; the file is damaged: fetch or "
                "convert it again",
                param=tensor.name,
            )
        on_bytes(len(data))

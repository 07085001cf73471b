"""A decoder's weights in memory: matrices as the kernels want them, vectors as float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pageloom_cpu import Matrix

from pageloom.backends.cpu.options import Level
from pageloom.errors import BadModelFile, OutOfMemory
from pageloom.model.decoder import ModelDescription
from pageloom.model.gguf import TensorInfo, read_tensor
from pageloom.model.layer_ops import matrix_names, vector_names
from pageloom.model.source import RangedSource
from pageloom.progress import OnProgress, Progress, ignore_progress

CHUNK_BYTES = 8 * 2**20
"""How much of the file is held beside the weights while they are loaded."""

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """By GGUF tensor names. A matrix that several operations name is held once."""

    matrices: dict[str, Matrix]
    vectors: dict[str, Vector]

    @property
    def num_bytes(self) -> int:
        return sum(matrix.nbytes for matrix in self.matrices.values()) + sum(v.nbytes for v in self.vectors.values())


async def load_decoder_weights(
    source: RangedSource,
    description: ModelDescription,
    level: Level,
    on_progress: OnProgress = ignore_progress,
) -> DecoderWeights:
    """Read and repack every weight for the instruction set `level`.

    Raises `BadModelFile` for numbers that are not finite, `OutOfMemory`, and what the source raises.
    """
    tensors, ops = description.gguf.tensors, description.decoder.ops
    names = list(dict.fromkeys(name for op in ops for name in matrix_names(op)))
    total = sum(tensors[name].size for name in names)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        on_progress(Progress("weights", done, total))

    try:
        matrices = {name: await _load_matrix(source, tensors[name], level, on_bytes) for name in names}
        vectors = {
            name: await _load_vector(source, tensors[name])
            for name in {name for op in ops for name in vector_names(op)}
        }
    except MemoryError as error:
        raise OutOfMemory(f"the weights take {total} bytes, which this machine has no memory for") from error
    return DecoderWeights(matrices, vectors)


async def _load_matrix(
    source: RangedSource, tensor: TensorInfo, level: Level, on_bytes: Callable[[int], None]
) -> Matrix:
    rows, columns = tensor.shape
    matrix = Matrix(rows, columns, tensor.format.name, level=level)
    row_bytes = tensor.size // rows
    step = max(1, CHUNK_BYTES // row_bytes)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        data = await source.read(tensor.offset + first * row_bytes, count * row_bytes)
        try:
            matrix.load(np.frombuffer(data, np.uint8), first)
        except ValueError as error:
            raise _not_finite(tensor) from error
        on_bytes(len(data))
    return matrix


async def _load_vector(source: RangedSource, tensor: TensorInfo) -> Vector:
    vector = np.array(await read_tensor(source, tensor), np.float32)
    if not np.isfinite(vector).all():
        raise _not_finite(tensor)
    return vector


def _not_finite(tensor: TensorInfo) -> BadModelFile:
    return BadModelFile(
        f"{tensor.name} holds a number that is not finite; the file is damaged: fetch or convert it again",
        param=tensor.name,
    )

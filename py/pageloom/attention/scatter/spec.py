"""`ai.onnx.TensorScatter` (opset 24): its attributes, and the check of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pageloom.attention.tensors import TensorInfo
from pageloom.attention.validation import Inputs, require, require_dtype, require_one_of, require_tensor

INPUT_NAMES = ("past_cache", "update", "write_indices")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorScatterSpec:
    """`mode` linear needs room for the whole update; circular wraps round. `axis` is the sequence dimension, not 0.

    Raises `InvalidArgument` naming the attribute.
    """

    mode: Literal["linear", "circular"] = "linear"
    axis: int = -2

    def __post_init__(self) -> None:
        require_one_of("mode", self.mode, ("linear", "circular"))
        require(
            isinstance(self.axis, int) and not isinstance(self.axis, bool) and self.axis != 0,
            f"axis is {self.axis!r}; a dimension other than the batch dimension 0 is allowed",
            "axis",
        )


@dataclass(frozen=True, slots=True)
class TensorScatterShape:
    """What the shapes say: the batch, the sequence dimension (counted from the front) and its sizes."""

    batch_size: int
    axis: int
    max_sequence_length: int
    sequence_length: int


def check_shapes(spec: TensorScatterSpec, given: dict[str, TensorInfo]) -> TensorScatterShape:
    """The resolved shape of a call. Raises `InvalidArgument` naming the input."""
    inputs = Inputs(given, INPUT_NAMES)
    cache, update = inputs.need("past_cache"), inputs.need("update")
    rank = len(cache.shape)
    axis = spec.axis + rank if spec.axis < 0 else spec.axis
    require(
        rank >= 2 and 0 < axis < rank,
        f"axis is {spec.axis} for a past_cache of {rank} dimensions; 1 to {rank - 1}, or {1 - rank} to -1, is allowed",
        "axis",
    )
    require_dtype("update", update, cache.dtype)
    require(
        len(update.shape) == rank
        and all(a == b for i, (a, b) in enumerate(zip(update.shape, cache.shape, strict=True)) if i != axis)
        and update.shape[axis] <= cache.shape[axis],
        f"update has shape {update.shape} and past_cache {cache.shape}; they may differ in dimension {axis} alone, "
        "where update is not the longer",
        "update",
    )
    if (indices := inputs.get("write_indices")) is not None:
        require_tensor("write_indices", indices, "int64", (cache.shape[0],))
    return TensorScatterShape(cache.shape[0], axis, cache.shape[axis], update.shape[axis])


def check_indices(spec: TensorScatterSpec, shape: TensorScatterShape, write_indices: Sequence[int]) -> None:
    """Raise `InvalidArgument` for an index, known to the host, below 0 or (linear) past the room for the update."""
    for row, index in enumerate(write_indices):
        last = shape.max_sequence_length - shape.sequence_length
        require(
            index >= 0 and (spec.mode == "circular" or index <= last),
            f"write_indices of row {row} is {index}; "
            + ("at least 0" if spec.mode == "circular" else f"0 to {last}")
            + " is allowed",
            "write_indices",
        )

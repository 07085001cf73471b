"""The sequences of a PagedAttention batch, each as a call of its own. Standard library only: it runs in the tab too."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pageloom.attention.cases.compare import Expected
from pageloom.attention.tensors import Tensor, TensorInfo, decode
from pageloom.attention.vectors import Vector

PER_TOKEN = ("query", "key", "value", "slot_mapping")
PER_SEQUENCE = ("past_seqlens", "block_table")
ROWS_OF_TOKENS = ("output", "log_sum_exp")
"""Outputs whose first axis is tokens."""
DEVICE_VALUES = frozenset({"device_lengths", "device_slots"})
"""Needs of cases whose integers break the contract; their sequences cannot be told apart by them."""


@dataclass(frozen=True, slots=True)
class Member:
    """One sequence of a batch: the inputs of its own call, and rows [start, stop) of the batch's tokens."""

    sequence: int
    start: int
    stop: int
    inputs: dict[str, Tensor]

    def rows(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The member's rows of a batch's outputs."""
        return {name: rows(outputs[name], self.start, self.stop) for name in ROWS_OF_TOKENS if name in outputs}

    def expected(self, wanted: Mapping[str, Expected]) -> dict[str, Expected]:
        """What is expected of the member's rows."""
        return {
            name: Expected(
                rows(wanted[name].values, self.start, self.stop),
                rows(wanted[name].budget, self.start, self.stop),
                wanted[name].optional,
            )
            for name in ROWS_OF_TOKENS
            if name in wanted
        }


def members(vector: Vector, most: int) -> Iterator[Member]:
    """At most `most` of the sequences that have new tokens, spread over the batch; none for a batch of one.

    Each runs on the batch's caches as they were before the batch.
    """
    if vector.operator != "paged_attention" or vector.needs & DEVICE_VALUES:
        return
    bounds = [int(bound) for bound in _numbers(vector.inputs["cumulative_sequence_length"])]
    busy = [row for row in range(len(bounds) - 1) if bounds[row] < bounds[row + 1]]
    if len(busy) < 2:
        return
    chosen = busy if len(busy) <= most else [busy[index * (len(busy) - 1) // (most - 1)] for index in range(most)]
    for row in chosen:
        start, stop = bounds[row], bounds[row + 1]
        inputs = dict(vector.inputs)
        inputs |= {name: rows(inputs[name], start, stop) for name in PER_TOKEN if name in inputs}
        inputs |= {name: rows(inputs[name], row, row + 1) for name in PER_SEQUENCE}
        lengths = struct.pack("<2i", 0, stop - start)
        inputs["cumulative_sequence_length"] = Tensor(TensorInfo("int32", (2,)), memoryview(lengths))
        yield Member(row, start, stop, inputs)


def rows(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Rows [start, stop) of the first axis."""
    first, *rest = tensor.info.shape
    size = tensor.info.num_bytes // first if first else 0
    info = TensorInfo(tensor.info.dtype, (stop - start, *rest))
    return Tensor(info, tensor.data[start * size : stop * size])


def _numbers(tensor: Tensor) -> list[float]:
    return list(decode(tensor.info.dtype, tensor.data))

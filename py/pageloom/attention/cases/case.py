"""One case of the conformance matrix: what goes in, what must come out, and how far off it may be."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pageloom.attention.cases.compare import Expected, Verdict, compare_outputs
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.numerics.dtypes import Array, Float64, as_tensor, as_tensors
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.scatter.spec import TensorScatterSpec
from pageloom.attention.tensors import Tensor
from pageloom.attention.vectors import Vector

Operator = Literal["paged_attention", "group_query_attention", "onnx_attention", "tensor_scatter"]
Spec = PagedAttentionSpec | GroupQueryAttentionSpec | OnnxAttentionSpec | TensorScatterSpec
Inputs = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Case:
    """A call of an operator, made anew and the same each time from its name.

    - `needs`: what a backend must support to be asked, e.g. "window", "int8_cache", "device_lengths" (lengths that
      break the contract, which a host would refuse: only device memory can hold them). A case is skipped for a missing
      need alone.
    - `quick`: whether it is one of the subset that runs with every change.
    - `guards`: the fault that it was written against, in words, or "".
    """

    name: str
    operator: Operator
    spec: Spec
    make_inputs: Callable[[np.random.Generator], Inputs]
    expect: Callable[[Inputs], dict[str, Expected]]
    needs: frozenset[str]
    quick: bool = False
    guards: str = ""

    def inputs(self) -> Inputs:
        """The arrays to call the operator with, by ONNX input name; those that it updates in place are the caller's."""
        return self.make_inputs(np.random.default_rng(zlib.crc32(self.name.encode())))

    def expected(self, inputs: Inputs | None = None) -> dict[str, Expected]:
        """What the float64 reference gives for `inputs`, or for the case's own, by ONNX output name."""
        return self.expect(self.inputs() if inputs is None else inputs)

    def vector(self) -> Vector:
        """The case in plain bytes, to be written to a file and run where there is no numpy."""
        inputs = self.inputs()
        return Vector(
            name=self.name,
            operator=self.operator,
            spec=self.spec,
            needs=self.needs,
            guards=self.guards,
            inputs=as_tensors(inputs),
            expected=self.expected(inputs),
        )


def compare(case: Case, outputs: Mapping[str, Tensor | Array]) -> Verdict:
    """Hold `outputs`, by ONNX output name, against the reference; caches are outputs too.

    Outputs that the operator leaves optional, such as log_sum_exp, may be missing.
    """
    tensors = {name: out if isinstance(out, Tensor) else as_tensor(out) for name, out in outputs.items()}
    return compare_outputs(case.expected(), tensors)


def expected_numbers(values: Float64, budget: Float64, *, optional: bool = False) -> Expected:
    """Numbers that may be off by `budget`, one bound for each row of the last axis."""
    budget = np.broadcast_to(budget, values.shape[:-1])
    return Expected(as_tensor(values), as_tensor(budget.astype(np.float64)), optional)


def expected_cache(cache: Array, budget: Float64) -> Expected:
    """A cache in its own element type; rows with budget 0 must be the same bit for bit."""
    return Expected(as_tensor(cache), as_tensor(np.broadcast_to(budget, cache.shape[:-1]).astype(np.float64)))

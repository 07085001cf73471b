"""`ai.onnx.TensorScatter` on the CPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pageloom.attention.numerics.dtypes import Array, describe_all
from pageloom.attention.scatter.reference import tensor_scatter
from pageloom.attention.scatter.spec import TensorScatterShape, TensorScatterSpec, check_indices, check_shapes
from pageloom.attention.validation import require_tensor
from pageloom.backends.cpu.arrays import dense, require_apart, require_writable, same_memory, views
from pageloom.backends.cpu.context import CpuContext
from pageloom.backends.cpu.operators.bound import KernelCall, Prepared, Run
from pageloom.backends.cpu.operators.operator import CpuOperator
from pageloom.backends.cpu.tiers import CompiledTier, Tier

PRESENT = "present_cache"


class CpuTensorScatter(CpuOperator):
    """The operator with its attributes; see `CpuOperator` for how inputs go in.

    `present_cache=` names the array of the output: past_cache itself, which is then updated in place, or another, apart
    from the inputs. Where it is not named it is new.
    """

    def __init__(self, context: CpuContext, spec: TensorScatterSpec) -> None:
        super().__init__(context)
        self.spec = spec

    def _prepared(self, given: dict[str, Any], *, may_copy: bool) -> Prepared:
        inputs = views(given)
        present = inputs.pop(PRESENT, None)
        shape = check_shapes(self.spec, describe_all(inputs))
        past = inputs["past_cache"]
        in_place = present is not None and same_memory(present, past)
        if present is not None:
            info = describe_all({PRESENT: past})[PRESENT]
            require_tensor(PRESENT, describe_all({PRESENT: present})[PRESENT], info.dtype, info.shape)
            require_writable(PRESENT, present)
            require_apart(PRESENT, present, {name: one for name, one in inputs.items()
                                             if not (in_place and name == "past_cache")})  # fmt: skip
        inputs = {
            name: array if in_place and name == "past_cache" else dense(name, array, may_copy=may_copy)
            for name, array in inputs.items()
        }
        if "write_indices" in inputs:
            check_indices(self.spec, shape, inputs["write_indices"].tolist())
        return _Prepared(self.spec, shape, inputs, present, in_place)


@dataclass(frozen=True, slots=True)
class _Prepared(Prepared):
    spec: TensorScatterSpec
    shape: TensorScatterShape
    inputs: dict[str, Array]
    present: Array | None
    in_place: bool

    def cannot(self) -> dict[Tier, str]:
        return dict.fromkeys(("flash-decoding", "flash"), "TensorScatter copies bits; there is no attention to tile")

    def bind_reference(self) -> tuple[dict[str, Array], Run]:
        outputs = self._outputs()
        return outputs, lambda: np.copyto(outputs[PRESENT], tensor_scatter(self.spec, self.inputs))

    def bind_kernels(self, tier: CompiledTier | None) -> KernelCall:
        from pageloom_cpu import tensor_scatter as scatter  # noqa: PLC0415 - optional

        outputs = self._outputs()
        axis, past = self.shape.axis, self.inputs["past_cache"]
        outer, inner = math.prod(past.shape[1:axis]), math.prod(past.shape[axis + 1 :])
        present = _bits(outputs[PRESENT]).reshape(past.shape[0], outer, past.shape[axis], inner)
        update = _bits(self.inputs["update"]).reshape(past.shape[0], outer, self.shape.sequence_length, inner)
        indices, circular = self.inputs.get("write_indices"), self.spec.mode == "circular"

        def run() -> None:
            if not self.in_place:
                np.copyto(outputs[PRESENT], past)
            if update.size:
                scatter(present, update, indices, circular=circular)

        return KernelCall(outputs, run)

    def _outputs(self) -> dict[str, Array]:
        return {PRESENT: np.empty_like(self.inputs["past_cache"]) if self.present is None else self.present}


def _bits(array: Array) -> Array:
    """The same memory as unsigned integers: some element types are none of the buffer protocol's."""
    return array.view(f"u{array.itemsize}")

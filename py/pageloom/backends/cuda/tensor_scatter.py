"""`ai.onnx.TensorScatter` on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch

from pageloom.attention.scatter.spec import TensorScatterShape, TensorScatterSpec, check_indices, check_shapes
from pageloom.attention.validation import require
from pageloom.backends.cuda.context import Context
from pageloom.backends.cuda.operator import CudaOperator, Prepared
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.tensors import Operand, as_operand, require_apart, same_memory
from pageloom.backends.cuda.tiers import SCATTER_TIERS, Tier


class CudaTensorScatter(CudaOperator):
    """The operator with its attributes; see `CudaOperator` for how inputs go in.

    `present_cache` may be given as the tensor of past_cache: it is then updated in place. Indices on the device that
    pass the room for the update wrap round where `mode` is circular, and write nothing where it is linear.
    """

    name = "TensorScatter"
    tiers = SCATTER_TIERS

    def __init__(self, context: Context, spec: TensorScatterSpec) -> None:
        super().__init__(context)
        self.spec = spec

    def _prepared(self, given: dict[str, Any]) -> Prepared:
        device = self._context.device
        operands = {name: as_operand(name, value, device) for name, value in given.items() if value is not None}
        alias = operands.pop("present_cache", None)
        shape = check_shapes(self.spec, {name: operand.info for name, operand in operands.items()})
        past = operands["past_cache"].tensor
        require(
            alias is None or same_memory(alias.tensor, past),
            "present_cache is not the memory of past_cache; give that tensor to update in place, or leave it out",
            "present_cache",
        )
        if alias is not None:
            require_apart({"past_cache": past}, {name: operand.tensor for name, operand in operands.items()})
        indices = operands.get("write_indices")
        if indices is not None and indices.host is not None:
            check_indices(self.spec, shape, indices.host.tolist())
        return _ScatterCall(self.spec, shape, operands, in_place=alias is not None)


class _ScatterCall(Prepared):
    def __init__(
        self, spec: TensorScatterSpec, shape: TensorScatterShape, operands: Mapping[str, Operand], *, in_place: bool
    ) -> None:
        self._spec, self._shape, self._in_place = spec, shape, in_place
        self.operands = operands

    def cannot(self) -> Mapping[Tier, str]:
        return {}

    def would_not_help(self) -> Mapping[Tier, str]:
        return {}

    def statics(self) -> Hashable:
        return self._spec, self._in_place

    def source(self, output: str) -> str:
        return "past_cache"

    def run(self, tier: Tier, plan: Plan) -> dict[str, torch.Tensor]:
        shape = self._shape
        past, update = (self.operands[name].tensor for name in ("past_cache", "update"))
        present = past if self._in_place or self.operands["past_cache"].host is not None else past.clone()
        if update.numel():
            cache, rows = present.movedim(shape.axis, 1), update.movedim(shape.axis, 1)
            sequence = torch.arange(shape.batch_size, device=past.device)[:, None]
            if "write_indices" in self.operands:
                start = self.operands["write_indices"].tensor[:, None]
            else:
                start = torch.zeros_like(sequence)
            places = start + torch.arange(shape.sequence_length, device=past.device)
            if self._spec.mode == "linear":
                fits = (start >= 0) & (start <= shape.max_sequence_length - shape.sequence_length)
                places = places.clamp(0, shape.max_sequence_length - 1)
                fits = fits.reshape(-1, *(1,) * (rows.dim() - 1))
                rows = torch.where(fits, rows, cache[sequence, places])
            else:
                places = places % shape.max_sequence_length
            cache[sequence, places] = rows
        return {"present_cache": present}

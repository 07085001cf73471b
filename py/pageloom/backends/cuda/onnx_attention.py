"""`ai.onnx.Attention`, opsets 23 and 24, on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

import torch

from pageloom.attention.onnx.check import OnnxAttentionShape, check_nonpad, check_shapes
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.validation import require, require_one_of
from pageloom.backends.cuda.context import Context
from pageloom.backends.cuda.onnx_call import AttentionCall
from pageloom.backends.cuda.onnx_choice import cannot, would_not_help
from pageloom.backends.cuda.onnx_tiers import run_cudnn, run_flash, run_memory_efficient, run_triton
from pageloom.backends.cuda.onnx_unfused import run_unfused
from pageloom.backends.cuda.operator import CudaOperator, Prepared
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.tensors import TORCH_DTYPES, Operand, as_operand
from pageloom.backends.cuda.tiers import ONNX_TIERS, Tier

OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


class CudaAttention(CudaOperator):
    """The operator with its attributes; see `CudaOperator` for how inputs go in.

    `outputs` names the outputs that are wanted, Y at least; without it Y, and present_key and present_value where there
    is a past. Present outputs are tensors of their own, never the inputs'.
    """

    name = "Attention"
    tiers = ONNX_TIERS

    def __init__(self, context: Context, spec: OnnxAttentionSpec) -> None:
        super().__init__(context)
        self.spec = spec

    def _prepared(self, given: dict[str, Any]) -> Prepared:
        outputs: Collection[str] | None = given.pop("outputs", None)
        device = self._context.device
        operands = {name: as_operand(name, value, device) for name, value in given.items() if value is not None}
        shape = check_shapes(self.spec, {name: operand.info for name, operand in operands.items()})
        if outputs is None:
            outputs = OUTPUTS[:3] if "past_key" in operands else OUTPUTS[:1]
        for name in outputs:
            require_one_of("outputs", name, OUTPUTS)
        require("Y" in outputs, f"outputs are {', '.join(outputs)}; Y is always one", "outputs")
        nonpad = operands.get("nonpad_kv_seqlen")
        if nonpad is not None and nonpad.host is not None:
            mask = operands.get("attn_mask")
            check_nonpad(shape, nonpad.host.tolist(), None if mask is None else mask.info.shape[-1])
        return _PreparedAttention(self._context, self.spec, shape, operands, frozenset(outputs))


class _PreparedAttention(Prepared):
    def __init__(
        self,
        context: Context,
        spec: OnnxAttentionSpec,
        shape: OnnxAttentionShape,
        operands: Mapping[str, Operand],
        wanted: frozenset[str],
    ) -> None:
        self._context, self._spec, self._shape, self._wanted = context, spec, shape, wanted
        self.operands = operands

    def cannot(self) -> Mapping[Tier, str]:
        return cannot(
            self._context.facts,
            self._spec,
            self._shape,
            value_dtype=self.operands["V"].info.dtype,
            has_mask="attn_mask" in self.operands,
            wants_products="qk_matmul_output" in self._wanted,
        )

    def would_not_help(self) -> Mapping[Tier, str]:
        return would_not_help(self._shape)

    def statics(self) -> Hashable:
        return self._spec, self._wanted

    def source(self, output: str) -> str:
        return "Q"

    def run(self, tier: Tier, plan: Plan) -> dict[str, torch.Tensor]:
        shape, device = self._shape, self._context.device
        inputs = {name: operand.tensor for name, operand in self.operands.items()}
        key, value, query = (_split(inputs[name], heads, shape.flat) for name, heads in (
            ("K", shape.kv_num_heads), ("V", shape.kv_num_heads), ("Q", shape.q_num_heads)
        ))  # fmt: skip
        if "past_key" in inputs:
            key = torch.cat((inputs["past_key"], key), dim=2)
            value = torch.cat((inputs["past_value"], value), dim=2)
        rows = (shape.batch_size, shape.q_num_heads, shape.q_sequence_length)
        flat = (rows[0], rows[2], rows[1] * shape.v_head_size)
        output = torch.empty(
            flat if shape.flat else (*rows, shape.v_head_size), dtype=TORCH_DTYPES[shape.dtype], device=device
        )
        outputs = {"Y": output}
        products = None
        if "qk_matmul_output" in self._wanted:
            scores = (*rows, shape.total_sequence_length)
            products = outputs["qk_matmul_output"] = torch.empty(scores, dtype=output.dtype, device=device)
        for name, tensor in (("present_key", key), ("present_value", value)):
            if name in self._wanted:
                copied = "past_key" in inputs
                outputs[name] = tensor if copied else tensor.clone(memory_format=torch.contiguous_format)
        call = AttentionCall(
            self._context.facts,
            self._spec,
            shape,
            query=query,
            key=key,
            value=value,
            output=_split(output, shape.q_num_heads, shape.flat),
            lengths=inputs.get("nonpad_kv_seqlen"),
            mask=inputs.get("attn_mask"),
            products=products,
        )
        _RUNS[tier](call, plan)
        return outputs


_RUNS = {
    "triton": run_triton,
    "cudnn": run_cudnn,
    "flash": run_flash,
    "memory-efficient": run_memory_efficient,
    "unfused": run_unfused,
}


def _split(tensor: torch.Tensor, heads: int, flat: bool) -> torch.Tensor:
    """The view `[B, heads, rows, width]` of a tensor of either rank."""
    return tensor.unflatten(2, (heads, -1)).transpose(1, 2) if flat else tensor

"""`ai.onnx.Attention`, opsets 23 and 24, on the CPU."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from pageloom.attention.numerics.dtypes import Array, describe_all, dtype_name
from pageloom.attention.onnx.check import check_nonpad, check_shapes
from pageloom.attention.onnx.reference import onnx_attention
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.validation import require, require_one_of, require_tensor
from pageloom.backends.cpu.arrays import dense, require_apart, require_writable, views
from pageloom.backends.cpu.context import CpuContext
from pageloom.backends.cpu.operators.bound import KernelCall, Prepared, Run
from pageloom.backends.cpu.operators.kernel_types import why_no_kernel
from pageloom.backends.cpu.operators.onnx_call import OUTPUT_NAMES, PRESENTS, OnnxAttentionCall, output_info
from pageloom.backends.cpu.operators.operator import CpuOperator
from pageloom.backends.cpu.tiers import CompiledTier, Tier


class CpuOnnxAttention(CpuOperator):
    """The operator with its attributes; see `CpuOperator` for how inputs go in.

    `outputs` names the optional outputs to compute beside Y; without it they are present_key and present_value where
    there is a past. An array given by the name of an output is where that goes, apart from every input.
    """

    def __init__(self, context: CpuContext, spec: OnnxAttentionSpec) -> None:
        super().__init__(context)
        self.spec = spec

    def _prepared(self, given: dict[str, Any], *, may_copy: bool) -> Prepared:
        named: Collection[str] | None = given.pop("outputs", None)
        inputs = views(given)
        arrays = {name: inputs.pop(name) for name in OUTPUT_NAMES if name in inputs}
        shape = check_shapes(self.spec, describe_all(inputs))
        if named is None:
            named = PRESENTS if "past_key" in inputs else ()
        for name in named:
            require_one_of("outputs", name, OUTPUT_NAMES)
            require(
                not shape.has_nonpad or name not in PRESENTS,
                f"outputs has {name} with nonpad_kv_seqlen, which says that K is the whole cache; leave it out",
                "outputs",
            )
        for name, array in arrays.items():
            info = output_info(shape, dtype_name(inputs["V"]), name)
            require_tensor(name, describe_all({name: array})[name], info.dtype, info.shape)
            require_writable(name, array)
            others = inputs | {other: one for other, one in arrays.items() if other != name}
            require_apart(name, array, others)
        inputs = {name: dense(name, array, may_copy=may_copy) for name, array in inputs.items()}
        if shape.has_nonpad:
            columns = inputs["attn_mask"].shape[-1] if "attn_mask" in inputs else None
            check_nonpad(shape, inputs["nonpad_kv_seqlen"].tolist(), columns)
        wanted = frozenset({"Y", *named, *arrays})
        return _Prepared(OnnxAttentionCall(self._context, self.spec, shape, inputs, arrays, wanted))


class _Prepared(Prepared):
    def __init__(self, call: OnnxAttentionCall) -> None:
        self._call = call

    def cannot(self) -> dict[Tier, str]:
        call = self._call
        reasons = why_no_kernel({"Q": call.shape.dtype, "V": call.value_dtype}, {})
        if "qk_matmul_output" in call.wanted and not reasons:
            scores = "qk_matmul_output is wanted, and only the naive tier holds all scores of a row at once"
            reasons = dict.fromkeys(("flash-decoding", "flash"), scores)
        return reasons

    def bind_reference(self) -> tuple[dict[str, Array], Run]:
        outputs = self._call.outputs()
        return outputs, lambda: _run_reference(self._call, outputs)

    def bind_kernels(self, tier: CompiledTier | None) -> KernelCall:
        from pageloom.backends.cpu.operators.onnx_kernels import bind  # noqa: PLC0415 - needs the compiled extension

        return bind(self._call, tier)


def _run_reference(call: OnnxAttentionCall, outputs: dict[str, Array]) -> None:
    with np.errstate(all="ignore"):
        result = onnx_attention(call.spec, call.inputs, allow_nan=True)
        outputs["Y"][...] = result.output
        for name in outputs.keys() - {"Y"}:
            outputs[name][...] = getattr(result, name)

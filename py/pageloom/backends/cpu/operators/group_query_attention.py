"""`com.microsoft.GroupQueryAttention` on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from pageloom.attention.group_query.check import GroupQueryAttentionShape, check_lengths, check_shapes
from pageloom.attention.group_query.reference import group_query_attention
from pageloom.attention.group_query.spec import SIDES, GroupQueryAttentionSpec, Side
from pageloom.attention.numerics.dtypes import Array, describe_all
from pageloom.attention.validation import require, require_tensor
from pageloom.backends.cpu.arrays import dense, require_apart, require_writable, same_memory, views
from pageloom.backends.cpu.context import CpuContext
from pageloom.backends.cpu.operators.bound import KernelCall, Prepared, Run
from pageloom.backends.cpu.operators.group_query_call import PAST, PRESENT, GroupQueryCall, present_info
from pageloom.backends.cpu.operators.kernel_types import why_no_kernel
from pageloom.backends.cpu.operators.operator import CpuOperator
from pageloom.backends.cpu.tiers import CompiledTier, Tier


class CpuGroupQueryAttention(CpuOperator):
    """The operator with its attributes; see `CpuOperator` for how inputs go in.

    `present_key=` and `present_value=` name the arrays of those outputs: the arrays of past_key and past_value
    themselves, which are then appended to in place, or others, apart from every input. Where they are not named they
    are new, and hold the past, the new rows and zeros. total_sequence_length is read once, also by `record`: there it
    is the bound of the calls to come.
    """

    def __init__(self, context: CpuContext, spec: GroupQueryAttentionSpec) -> None:
        super().__init__(context)
        self.spec = spec

    def _prepared(self, given: dict[str, Any], *, may_copy: bool) -> Prepared:
        spec = self.spec
        inputs = views(given)
        outputs = {name: inputs.pop(name) for name in PRESENT.values() if name in inputs}
        total = _total(inputs)
        shape = check_shapes(spec, describe_all(inputs), total)
        in_place = frozenset(side for side in SIDES if _is_in_place(spec, shape, inputs, outputs, side))
        for name, array in outputs.items():
            require_apart(name, array, {other: one for other, one in outputs.items() if other != name})
        pasts = {name: inputs[name] for name in PAST.values() if name in inputs}
        inputs = {
            name: array if name in pasts else dense(name, array, may_copy=may_copy) for name, array in inputs.items()
        }
        check_lengths(
            spec,
            shape,
            inputs["seqlens_k"].tolist(),
            inputs["query_seqlens"].tolist() if shape.has_query_seqlens else None,
        )
        return _Prepared(GroupQueryCall(self._context, spec, shape, inputs, outputs, in_place))


class _Prepared(Prepared):
    def __init__(self, call: GroupQueryCall) -> None:
        self._call = call

    def cannot(self) -> dict[Tier, str]:
        spec, shape = self._call.spec, self._call.shape
        storages = {"past_key": shape.key_storage, "past_value": shape.value_storage}
        reasons = why_no_kernel({"query": shape.dtype}, storages)
        if spec.qk_output and not reasons:
            scores = f"qk_output is {spec.qk_output}, and only the naive tier holds all scores of a row at once"
            reasons = dict.fromkeys(("flash-decoding", "flash"), scores)
        return reasons

    def bind_reference(self) -> tuple[dict[str, Array], Run]:
        outputs = self._call.outputs()
        return outputs, lambda: _run_reference(self._call, outputs)

    def bind_kernels(self, tier: CompiledTier | None) -> KernelCall:
        from pageloom.backends.cpu.operators.group_query_kernels import bind  # noqa: PLC0415 - compiled, optional

        return bind(self._call, tier)


def _total(inputs: dict[str, Array]) -> int:
    require("total_sequence_length" in inputs, "total_sequence_length is missing; it is always required",
            "total_sequence_length")  # fmt: skip
    total = inputs["total_sequence_length"]
    require(
        total.size == 1 and total.dtype == np.int32,
        f"total_sequence_length is {total.dtype} of shape {total.shape}; one int32 is expected",
        "total_sequence_length",
    )
    return int(total.reshape(()))


def _is_in_place(
    spec: GroupQueryAttentionSpec,
    shape: GroupQueryAttentionShape,
    inputs: dict[str, Array],
    outputs: dict[str, Array],
    side: Side,
) -> bool:
    """Whether the present of `side` is its past; raises `InvalidArgument` for an output that fits nothing."""
    name, past = PRESENT[side], PAST[side]
    if name not in outputs:
        return False
    array, info = outputs[name], present_info(spec, shape, side)
    in_place = past in inputs and same_memory(array, inputs[past])
    require(
        not in_place or shape.present_length == shape.past_length,
        f"{name} is {past} with {shape.past_length} rows, and {shape.total_sequence_length} tokens need as many; "
        "give a longer one",
        name,
    )
    require_tensor(name, describe_all({name: array})[name], info.dtype, info.shape)
    require_writable(name, array)
    require_apart(name, array, {other: one for other, one in inputs.items() if not (in_place and other == past)})
    return in_place


def _run_reference(call: GroupQueryCall, outputs: dict[str, Array]) -> None:
    with np.errstate(all="ignore"):
        result = group_query_attention(call.spec, call.inputs, allow_nan=True)
        outputs["output"][...] = result.output.reshape(outputs["output"].shape)
        if result.output_qk is not None:
            outputs["output_qk"][...] = result.output_qk
    for side, present in zip(SIDES, (result.present_key, result.present_value), strict=True):
        array = outputs[PRESENT[side]]
        rows = result.resident[:, None, :, None] if side in call.in_place else np.True_
        np.copyto(array, present, where=rows)

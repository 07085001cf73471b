"""`com.microsoft.PagedAttention` on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array, describe_all
from pageloom.attention.paged.check import PagedAttentionShape, check_shapes
from pageloom.attention.paged.host_values import check_lengths, check_metadata
from pageloom.attention.paged.reference import paged_attention
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.validation import require
from pageloom.backends.cpu.arrays import dense, require_apart, require_writable, same_memory, views
from pageloom.backends.cpu.context import CpuContext
from pageloom.backends.cpu.operators.bound import KernelCall, Prepared, Run
from pageloom.backends.cpu.operators.kernel_types import why_no_kernel
from pageloom.backends.cpu.operators.operator import CpuOperator
from pageloom.backends.cpu.tiers import CompiledTier, Tier

ALIASES = {"key_cache_out": "key_cache", "value_cache_out": "value_cache"}


class CpuPagedAttention(CpuOperator):
    """The operator with its attributes; see `CpuOperator` for how inputs go in.

    The caches are updated in place, and are the outputs `key_cache_out` and `value_cache_out`. With `log_sum_exp=True`
    there is one more output of that name, float32 `[num_tokens, num_heads]`.
    """

    def __init__(self, context: CpuContext, spec: PagedAttentionSpec) -> None:
        super().__init__(context)
        self.spec = spec

    def _prepared(self, given: dict[str, Any], *, may_copy: bool) -> Prepared:
        log_sum_exp = bool(given.pop("log_sum_exp", False))
        inputs = views(given)
        outputs = {name: inputs.pop(name) for name in ALIASES if name in inputs}
        shape = check_shapes(self.spec, describe_all(inputs))
        caches = {name: inputs[name] for name in ALIASES.values() if name in inputs}
        for name, cache in caches.items():
            require_writable(name, cache)
            require_apart(name, cache, {other: array for other, array in inputs.items() if other != name})
        for name, array in outputs.items():
            require(
                ALIASES[name] in caches and same_memory(array, caches[ALIASES[name]]),
                f"{name} is not the array {ALIASES[name]}, which is updated in place: give that, or leave {name} out",
                name,
            )
        inputs = caches | {name: dense(name, array, may_copy=may_copy) for name, array in inputs.items()
                           if name not in caches}  # fmt: skip
        if "attention_metadata" in inputs:
            check_metadata(shape, inputs["attention_metadata"].tolist())
        check_lengths(shape, inputs["cumulative_sequence_length"].tolist(), inputs["past_seqlens"].tolist())
        return _PagedCall(self._context, self.spec, shape, inputs, log_sum_exp=log_sum_exp)


class _PagedCall(Prepared):
    def __init__(
        self,
        context: CpuContext,
        spec: PagedAttentionSpec,
        shape: PagedAttentionShape,
        inputs: dict[str, Array],
        *,
        log_sum_exp: bool,
    ) -> None:
        self._context = context
        self._spec = spec
        self._shape = shape
        self._inputs = inputs
        self._log_sum_exp = log_sum_exp

    def cannot(self) -> dict[Tier, str]:
        caches = {"key_cache": self._shape.key_storage, "value_cache": self._shape.value_storage}
        return why_no_kernel({"query": self._shape.dtype}, caches)

    def bind_reference(self) -> tuple[dict[str, Array], Run]:
        outputs = self._outputs()
        return outputs, lambda: self._run_reference(outputs)

    def bind_kernels(self, tier: CompiledTier | None) -> KernelCall:
        from pageloom.backends.cpu.operators.paged_kernels import bind  # noqa: PLC0415 - needs the compiled extension

        return bind(self._context, self._spec, self._shape, self._inputs, self._outputs(), tier)

    def _outputs(self) -> dict[str, Array]:
        shape, heads = self._shape, self._spec.num_heads
        output = np.empty((shape.num_tokens, heads * shape.v_head_size), NUMPY_DTYPES[shape.dtype])
        outputs = {"output": output} | {name: self._inputs[of] for name, of in ALIASES.items() if of in self._inputs}
        if self._log_sum_exp:
            outputs["log_sum_exp"] = np.empty((shape.num_tokens, heads), np.float32)
        return outputs

    def _run_reference(self, outputs: dict[str, Array]) -> None:
        with np.errstate(all="ignore"):
            result = paged_attention(self._spec, self._inputs, allow_nan=True)
            outputs["output"][...] = result.output.reshape(outputs["output"].shape)
            if "log_sum_exp" in outputs:
                outputs["log_sum_exp"][...] = result.log_sum_exp
        outputs["key_cache_out"][...] = result.key_cache
        if result.value_cache is not None:
            outputs["value_cache_out"][...] = result.value_cache

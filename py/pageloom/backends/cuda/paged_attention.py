"""`com.microsoft.PagedAttention` on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch

from pageloom.attention.paged.check import PagedAttentionShape, QkvMode, check_shapes
from pageloom.attention.paged.host_values import check_lengths, check_metadata
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.validation import require
from pageloom.backends.cuda.cached import Cached, Strides
from pageloom.backends.cuda.cached_call import CachedCall, geometry_of
from pageloom.backends.cuda.context import Context
from pageloom.backends.cuda.geometry import Geometry
from pageloom.backends.cuda.operator import CudaOperator, Prepared
from pageloom.backends.cuda.paged_cudnn import run_fresh, run_gathered
from pageloom.backends.cuda.paged_unfused import attend_unfused
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.tensors import TORCH_DTYPES, Operand, as_operand, require_apart, same_memory
from pageloom.backends.cuda.tiers import CACHED_TIERS, Tier
from pageloom.errors import InvalidArgument

ALIASES = {"key_cache_out": "key_cache", "value_cache_out": "value_cache"}


class CudaPagedAttention(CudaOperator):
    """The operator with its attributes; see `CudaOperator` for how inputs go in.

    The caches are updated in place, and are the outputs `key_cache_out` and `value_cache_out`. With `log_sum_exp=True`
    there is one more output of that name, float32 `[num_tokens, num_heads]`. `attention_metadata` stays on the host.
    """

    name = "PagedAttention"
    tiers = CACHED_TIERS
    appends = True

    def __init__(self, context: Context, spec: PagedAttentionSpec) -> None:
        super().__init__(context)
        self.spec = spec

    def _prepared(self, given: dict[str, Any]) -> Prepared:
        log_sum_exp = bool(given.pop("log_sum_exp", False))
        device = self._context.device
        operands = {name: as_operand(name, value, device) for name, value in given.items() if value is not None}
        aliases = {name: operands.pop(name) for name in ALIASES if name in operands}
        shape = check_shapes(self.spec, {name: operand.info for name, operand in operands.items()})
        for name, alias in aliases.items():
            cache = operands.get(ALIASES[name])
            require(
                cache is not None and same_memory(alias.tensor, cache.tensor),
                f"{name} is not the memory of {ALIASES[name]}, which is updated in place: give that tensor, or leave "
                f"{name} out",
                name,
            )
        caches = {name: operands[name].tensor for name in ALIASES.values() if name in operands}
        require_apart(caches, {name: operand.tensor for name, operand in operands.items()})
        query_bound, kv_bound = self._bounds(shape, operands)
        return _PagedCall(self._context, self.spec, shape, operands, query_bound, kv_bound, log_sum_exp=log_sum_exp)

    def _bounds(self, shape: PagedAttentionShape, operands: dict[str, Operand]) -> tuple[int, int]:
        """Upper bounds of a sequence's new tokens and keys, from the metadata, or from lengths in host memory."""
        metadata = operands.pop("attention_metadata", None)
        entries = [0, 0]
        if metadata is not None:
            if metadata.host is None:
                raise InvalidArgument(
                    "attention_metadata is in device memory; it sizes grids and must be in host memory",
                    param="attention_metadata",
                )
            entries = metadata.host.tolist()
        query_bound, kv_bound, _ = check_metadata(shape, entries)
        cumulative, past = (operands[name].host for name in ("cumulative_sequence_length", "past_seqlens"))
        if cumulative is not None and past is not None:
            check_lengths(shape, cumulative.tolist(), past.tolist())
            new = cumulative[1:] - cumulative[:-1]
            query_bound = min(query_bound, max(1, int(new.max())))
            kv_bound = min(kv_bound, max(1, int((past + new).max())))
        return query_bound, kv_bound


class _PagedCall(CachedCall):
    def __init__(
        self,
        context: Context,
        spec: PagedAttentionSpec,
        shape: PagedAttentionShape,
        operands: Mapping[str, Operand],
        query_bound: int,
        kv_bound: int,
        *,
        log_sum_exp: bool,
    ) -> None:
        self._spec, self._shape = spec, shape
        self.operands = operands
        self._log_sum_exp = log_sum_exp
        super().__init__(context, _geometry(spec, shape, operands), max(1, query_bound), max(1, kv_bound))

    def statics(self) -> Hashable:
        return self._spec, self._query_bound, self._kv_bound, self._log_sum_exp

    def source(self, output: str) -> str:
        return ALIASES.get(output, "query")

    def cannot_fuse(self) -> str:
        if self._spec.latent:
            return "a LATENT cache is attended by many query heads, more than one program takes"
        if self._shape.has_slot_mapping:
            return "slot_mapping may store a token where another reads; it takes two kernels"
        if self._query_bound > 1:
            return f"a sequence may have {self._query_bound} new tokens; say 1 in attention_metadata where it has not"
        return ""

    def cannot_cudnn(self) -> str:
        if self._log_sum_exp:
            return "log_sum_exp is wanted, and it is not kept"
        if self._shape.num_tokens != self._shape.batch_size * self._query_bound:
            return "the sequences may have new tokens of different numbers, and it takes the same of each"
        return ""

    def why_cudnn_would_not_help(self) -> str:
        if self._query_bound == 1:
            return "one new token a sequence: pages are read faster in place than gathered"
        return ""

    def outputs(self) -> dict[str, torch.Tensor]:
        shape, device = self._shape, self._context.device
        heads = self._spec.num_heads
        outputs = {
            "output": torch.empty(
                (shape.num_tokens, heads * shape.v_head_size), dtype=TORCH_DTYPES[shape.dtype], device=device
            )
        }
        outputs |= {out: self.operands[name].tensor for out, name in ALIASES.items() if name in self.operands}
        if self._log_sum_exp:
            outputs["log_sum_exp"] = torch.empty((shape.num_tokens, heads), dtype=torch.float32, device=device)
        return outputs

    def cached(self, outputs: Mapping[str, torch.Tensor]) -> Cached:
        shape, geometry = self._shape, self.geometry
        inputs = {name: operand.tensor for name, operand in self.operands.items()}
        query, key, value = inputs["query"], inputs.get("key"), inputs.get("value")
        kv_width = geometry.kv_num_heads * geometry.head_size
        if shape.mode is QkvMode.PACKED:
            first = geometry.num_heads * geometry.head_size
            key, value = query[:, first : first + kv_width], query[:, first + kv_width :]
        key_cache = inputs["key_cache"]
        value_cache = inputs.get("value_cache", key_cache)
        return Cached(
            inputs=inputs,
            query=query,
            key=key,
            value=value,
            key_cache=key_cache,
            value_cache=value_cache,
            output=outputs["output"],
            log_sum_exp=outputs.get("log_sum_exp"),
            query_strides=Strides(0, query.shape[1], geometry.head_size),
            key_strides=Strides(*key_cache.stride()[:3]),
            value_strides=Strides(*value_cache.stride()[:3]),
            output_strides=Strides(0, geometry.num_heads * geometry.v_head_size, geometry.v_head_size),
            kv_row=query.shape[1] if shape.mode is QkvMode.PACKED else kv_width,
            starts=inputs["cumulative_sequence_length"],
            lengths=inputs["past_seqlens"],
            query_lengths=None,
            table=inputs["block_table"],
            sequences=shape.batch_size,
            num_tokens=shape.num_tokens,
            rows=0,
            limit=shape.position_limit,
            fixed_past=0,
            query_bound=self._query_bound,
            kv_bound=self._kv_bound,
            num_blocks=shape.num_blocks,
        )

    def run(self, tier: Tier, plan: Plan) -> dict[str, torch.Tensor]:
        outputs = self.outputs()
        if self._shape.num_tokens:
            self.run_cached(tier, plan, self.cached(outputs))
        return outputs

    def run_cudnn(self, call: Cached, plan: Plan) -> None:
        takes_inputs = self._is_fresh() and not self.geometry.prepares_query
        if takes_inputs and call.key is not None and call.value is not None:
            run_fresh(self.geometry, call, call.key, call.value, self.tile(call, few_rows=False), plan)
        else:
            run_gathered(self.geometry, call, self.tile(call, few_rows=False), plan)

    def _is_fresh(self) -> bool:
        """Whether no sequence can have a past, and all have the same number of new tokens, by what is static."""
        uniform = self._shape.num_tokens == self._shape.batch_size * self._query_bound
        return uniform and self._kv_bound == self._query_bound and not self._shape.has_slot_mapping

    def attend_unfused(self, call: Cached, query: torch.Tensor) -> None:
        attend_unfused(self.geometry, call, query)


def _geometry(spec: PagedAttentionSpec, shape: PagedAttentionShape, operands: Mapping[str, Operand]) -> Geometry:
    return geometry_of(
        spec,
        shape,
        lengths="paged",
        v_head_size=shape.v_head_size,
        block_size=shape.block_size,
        causal=bool(spec.is_causal),
        sink="given" if "head_sink" in operands else "zero" if spec.use_smooth_softmax else "none",
        latent=shape.mode is QkvMode.LATENT,
        norm=shape.has_qk_norm,
        q_epsilon=float(spec.qk_norm_epsilon),
        k_epsilon=float(spec.qk_norm_epsilon),
        rotary_offset=spec.rotary_offset if shape.rotary_dim else 0,
    )

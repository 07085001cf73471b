"""One call of GroupQueryAttention: its static side, its caches, and its tiers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch

from pageloom.attention.group_query.check import GroupQueryAttentionShape, KvMode
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.backends.cuda.attend import append
from pageloom.backends.cuda.cached import Cached, Strides
from pageloom.backends.cuda.cached_call import CachedCall, geometry_of
from pageloom.backends.cuda.context import Context
from pageloom.backends.cuda.cudnn_sdpa import Causal, SdpaForm, finite_values, run_sdpa
from pageloom.backends.cuda.geometry import Geometry, Lengths
from pageloom.backends.cuda.group_query_unfused import attend_unfused
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.sliding_cache import SlidingCache
from pageloom.backends.cuda.tensors import TORCH_DTYPES, Operand
from pageloom.backends.cuda.tiers import Tier

ALIASES = {"present_key": "past_key", "present_value": "past_value"}
"""Outputs that may be the tensors of their inputs."""


class GroupQueryCall(CachedCall):
    def __init__(
        self,
        context: Context,
        spec: GroupQueryAttentionSpec,
        shape: GroupQueryAttentionShape,
        operands: Mapping[str, Operand],
        *,
        in_place: bool,
    ) -> None:
        self._spec, self._shape, self._in_place = spec, shape, in_place
        self.operands = operands
        super().__init__(context, _geometry(spec, shape, operands), shape.sequence_length, shape.total_sequence_length)

    def statics(self) -> Hashable:
        return self._spec, self._shape.total_sequence_length, self._in_place

    def source(self, output: str) -> str:
        return ALIASES[output] if output in ALIASES and ALIASES[output] in self.operands else "query"

    def moved(self) -> Sequence[torch.Tensor]:
        slides = self._in_place and self._spec.sliding_window_cache
        return [self.operands[name].tensor for name in ALIASES.values()] if slides else ()

    def _unfused_only(self) -> str:
        """Why nothing but tier unfused can run the call, or ""."""
        features = {
            "attention_bias": "attention_bias" in self.operands,
            "qk_output": self._spec.qk_output > 0,
            "sliding_window_cache": bool(self._spec.sliding_window_cache),
        }
        used = [name for name, there in features.items() if there]
        return f"it does not do {' and '.join(used)}" if used else ""

    def cannot(self) -> Mapping[Tier, str]:
        reasons = dict(super().cannot())
        if reason := self._unfused_only():
            reasons |= dict.fromkeys(("fused", "triton", "cudnn"), reason)
        return reasons

    def cannot_fuse(self) -> str:
        if self._shape.mode is KvMode.SHARED:
            return "key and value are empty, and there is nothing to append"
        if self._shape.has_query_seqlens:
            return "query_seqlens may leave a sequence without a new token"
        if "position_ids" in self.operands:
            return "position_ids may differ from the place in the cache"
        if self._query_bound > 1:
            return f"a sequence has {self._query_bound} new tokens; it takes one"
        return ""

    def cannot_cudnn(self) -> str:
        if self._shape.has_query_seqlens:
            return "query_seqlens leave rows that see less than the last"
        return ""

    def why_cudnn_would_not_help(self) -> str:
        return "one new token a sequence: split keys are faster" if self._query_bound == 1 else ""

    def run(self, tier: Tier, plan: Plan) -> dict[str, torch.Tensor]:
        shape, device = self._shape, self._context.device
        rows = (shape.batch_size, shape.sequence_length)
        width = self.geometry.num_heads * self.geometry.head_size
        outputs = {"output": torch.empty((*rows, width), dtype=TORCH_DTYPES[shape.dtype], device=device)}
        if self._spec.qk_output:
            outputs["output_qk"] = torch.zeros(
                (rows[0], self.geometry.num_heads, rows[1], shape.total_sequence_length),
                dtype=TORCH_DTYPES[shape.dtype],
                device=device,
            )
        if self._spec.sliding_window_cache:
            cache = SlidingCache(self._spec, shape, {name: one.tensor for name, one in self.operands.items()})
            call = cache.placed(self._cached(outputs, *cache.scratch))
            query, _ = append(self.geometry, call)
            attend_unfused(self._spec, self.geometry, call, query, cache.first_position)
            present = cache.present(in_place=self._in_place)
        else:
            present = self._present()
            self.run_cached(tier, plan, self._cached(outputs, *present))
        return outputs | dict(zip(ALIASES, present, strict=True))

    def attend_unfused(self, call: Cached, query: torch.Tensor) -> None:
        attend_unfused(self._spec, self.geometry, call, query)

    def _present(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The caches that new tokens go to: the past's own, or new ones that begin with it."""
        shape, presents = self._shape, []
        for name, storage in zip(ALIASES.values(), (shape.key_storage, shape.value_storage), strict=True):
            past = self.operands.get(name)
            if (
                past is not None
                and (self._in_place or past.host is not None)
                and shape.present_length == shape.past_length
            ):
                presents.append(past.tensor)
                continue
            present = torch.zeros(
                (
                    shape.batch_size,
                    self.geometry.kv_num_heads,
                    shape.present_length,
                    storage.row_width(shape.head_size),
                ),
                dtype=TORCH_DTYPES[storage.tensor_dtype],
                device=self._context.device,
            )
            if past is not None:
                present[:, :, : shape.past_length] = past.tensor
            presents.append(present)
        return presents[0], presents[1]

    def _cached(
        self, outputs: Mapping[str, torch.Tensor], key_cache: torch.Tensor, value_cache: torch.Tensor
    ) -> Cached:
        shape, geometry = self._shape, self.geometry
        inputs = {name: operand.tensor for name, operand in self.operands.items()}
        batch, rows = shape.batch_size, shape.sequence_length
        query = inputs["query"].reshape(batch * rows, -1)
        kv_width = geometry.kv_num_heads * geometry.head_size
        key = value = None
        if shape.mode is KvMode.PACKED:
            first = geometry.num_heads * geometry.head_size
            key, value = query[:, first : first + kv_width], query[:, first + kv_width :]
        elif shape.mode is KvMode.SEPARATE:
            key, value = (inputs[name].reshape(batch * rows, kv_width) for name in ("key", "value"))
        k_block, k_head, k_row, _ = key_cache.stride()
        v_block, v_head, v_row, _ = value_cache.stride()
        width = geometry.num_heads * geometry.head_size
        return Cached(
            inputs=inputs,
            query=query,
            key=key,
            value=value,
            key_cache=key_cache,
            value_cache=value_cache,
            output=outputs["output"],
            log_sum_exp=None,
            query_strides=Strides(rows * query.shape[1], query.shape[1], geometry.head_size),
            key_strides=Strides(k_block, k_row, k_head),
            value_strides=Strides(v_block, v_row, v_head),
            output_strides=Strides(rows * width, width, geometry.head_size),
            kv_row=query.shape[1] if shape.mode is KvMode.PACKED else kv_width,
            starts=None,
            lengths=inputs["seqlens_k"],
            query_lengths=inputs.get("query_seqlens"),
            table=None,
            sequences=batch,
            num_tokens=batch * rows,
            rows=rows,
            limit=key_cache.shape[2],
            fixed_past=0,
            query_bound=rows,
            kv_bound=key_cache.shape[2],
            scores=outputs.get("output_qk"),
        )

    def run_cudnn(self, call: Cached, plan: Plan) -> None:
        geometry = self.geometry
        query, strides = append(geometry, call)
        lengths = (self.operands["seqlens_k"].tensor + 1).clamp_(0, call.limit)
        value = call.value_cache if call.rows == 1 else finite_values(call.value_cache, lengths)
        v_batch, v_head, v_row, _ = value.stride()
        k, o = call.key_strides, call.output_strides
        causal: Causal = "none"
        if geometry.causal:
            causal = "top-left" if geometry.lengths == "prompt" else "bottom-right"
        form = SdpaForm(
            dtype=geometry.dtype,
            batch=call.sequences,
            num_heads=geometry.num_heads,
            kv_num_heads=geometry.kv_num_heads,
            rows=call.rows,
            kv_rows=call.kv_bound,
            head_size=geometry.head_size,
            v_head_size=geometry.v_head_size,
            q_strides=(strides.batch, strides.head, strides.row),
            k_strides=(k.batch, k.head, k.row),
            v_strides=(v_batch, v_head, v_row),
            o_strides=(o.batch, o.head, o.row),
            scale=geometry.scale,
            causal=causal,
            has_lengths=True,
        )
        run_sdpa(form, plan, query, call.key_cache, value, call.output, lengths)


def _geometry(
    spec: GroupQueryAttentionSpec, shape: GroupQueryAttentionShape, operands: Mapping[str, Operand]
) -> Geometry:
    lengths: Lengths = "chunk" if shape.has_query_seqlens else "prompt" if shape.first_prompt else "append"
    return geometry_of(
        spec,
        shape,
        lengths=lengths,
        causal=bool(spec.causal),
        sink="given" if "head_sink" in operands else "zero" if spec.smooth_softmax == 1 else "none",
        norm="q_norm_weight" in operands,
        q_epsilon=float(spec.q_norm_epsilon or spec.qk_norm_epsilon),
        k_epsilon=float(spec.k_norm_epsilon or spec.qk_norm_epsilon),
        reciprocal=True,
    )

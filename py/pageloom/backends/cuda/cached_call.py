"""What PagedAttention and GroupQueryAttention share: the tiers over a cache that the call itself appends to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch

from pageloom.attention.group_query.check import GroupQueryAttentionShape
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.paged.check import PagedAttentionShape
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.cuda.attend import append, attend
from pageloom.backends.cuda.cached import Cached
from pageloom.backends.cuda.context import Context
from pageloom.backends.cuda.cudnn_choice import why_not_cudnn
from pageloom.backends.cuda.geometry import (
    DECODE_ROWS,
    DECODE_WIDTH,
    Geometry,
    Lengths,
    Sink,
    Tile,
    takes_decode,
    tile_of,
)
from pageloom.backends.cuda.operator import Prepared
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.tiers import Tier


def geometry_of(
    spec: PagedAttentionSpec | GroupQueryAttentionSpec,
    shape: PagedAttentionShape | GroupQueryAttentionShape,
    *,
    lengths: Lengths,
    causal: bool,
    sink: Sink,
    norm: bool,
    q_epsilon: float,
    k_epsilon: float,
    v_head_size: int | None = None,
    block_size: int = 0,
    latent: bool = False,
    rotary_offset: int = 0,
    reciprocal: bool = False,
) -> Geometry:
    """The geometry of a call: what both operators name alike, and what each has of its own."""
    return Geometry(
        dtype=shape.dtype,
        num_heads=spec.num_heads,
        kv_num_heads=spec.kv_num_heads,
        head_size=shape.head_size,
        v_head_size=shape.head_size if v_head_size is None else v_head_size,
        scale=float(spec.logit_scale(shape.head_size)),
        key_storage=shape.key_storage,
        value_storage=shape.value_storage,
        lengths=lengths,
        block_size=block_size,
        softcap=float(spec.softcap),
        window=spec.local_window_size if spec.windowed else 0,
        causal=causal,
        sink=sink,
        latent=latent,
        norm=norm,
        q_epsilon=q_epsilon,
        k_epsilon=k_epsilon,
        rotary=("interleaved" if spec.rotary_interleaved else "half") if shape.rotary_dim else "none",
        rotary_dim=shape.rotary_dim,
        rotary_offset=rotary_offset,
        reciprocal=reciprocal,
    )


class CachedCall(Prepared):
    """`query_bound` and `kv_bound` are of the new tokens and keys of any one sequence."""

    def __init__(self, context: Context, geometry: Geometry, query_bound: int, kv_bound: int) -> None:
        self._context = context
        self.geometry = geometry
        self._query_bound = query_bound
        self._kv_bound = kv_bound

    @abstractmethod
    def cannot_fuse(self) -> str:
        """The reason of the operator's own against tier fused, or ""."""

    @abstractmethod
    def cannot_cudnn(self) -> str:
        """The reason of the operator's own against tier cudnn, or ""."""

    @abstractmethod
    def why_cudnn_would_not_help(self) -> str:
        """Why another tier is faster than cudnn, or ""."""

    @abstractmethod
    def attend_unfused(self, call: Cached, query: torch.Tensor) -> None:
        """Attention of the prepared `query` as matrix products."""

    @abstractmethod
    def run_cudnn(self, call: Cached, plan: Plan) -> None:
        """The append, and attention of cuDNN."""

    def cannot(self) -> Mapping[Tier, str]:
        geometry = self.geometry
        reasons: dict[Tier, str] = {}
        if geometry.dtype not in ("float16", "bfloat16"):
            reason = f"its tensor-core products take float16 and bfloat16, not {geometry.dtype}"
            reasons |= {"fused": reason, "triton": reason}
        for operand in self.operands.values():
            if operand.tensor.dtype == torch.int8 and operand.tensor.data_ptr() % 2:
                reason = "codes of 8 bits are loaded in pairs, and a cache begins at an odd address"
                reasons |= {"fused": reason, "triton": reason}
        if reason := self.cannot_fuse():
            reasons.setdefault("fused", reason)
        if not takes_decode(geometry, 1):
            reasons.setdefault(
                "fused",
                f"{geometry.group} query heads share a K/V head of {geometry.head_size} channels; at most "
                f"{DECODE_ROWS} heads of {DECODE_WIDTH} channels fit",
            )
        if reason := self._why_not_cudnn():
            reasons["cudnn"] = reason
        return reasons

    def would_not_help(self) -> Mapping[Tier, str]:
        reason = self.why_cudnn_would_not_help()
        return {"cudnn": reason} if reason else {}

    def _why_not_cudnn(self) -> str:
        geometry = self.geometry
        if reason := why_not_cudnn(self._context.facts, geometry.dtype, geometry.head_size, geometry.v_head_size):
            return reason
        features = {
            "softcap": geometry.softcap > 0,
            "a window": geometry.window > 0,
            "a sink": geometry.sink != "none",
            "a latent cache": geometry.latent,
            "a quantised cache": geometry.key_storage.quantized or geometry.value_storage.quantized,
        }
        used = [name for name, there in features.items() if there]
        return f"it does not do {' and '.join(used)} here" if used else self.cannot_cudnn()

    def run_cached(self, tier: Tier, plan: Plan, call: Cached) -> None:
        """Queue the call on `tier`."""
        tile = self.tile(call)
        if tier == "fused":
            attend(self.geometry, call, call.query, call.query_strides, tile, plan, fused=True)
        elif tier == "cudnn":
            self.run_cudnn(call, plan)
        else:
            query, strides = append(self.geometry, call)
            if tier == "triton":
                attend(self.geometry, call, query, strides, tile, plan)
            else:
                self.attend_unfused(call, query)

    def tile(self, call: Cached, *, few_rows: bool = True) -> Tile:
        """Of our kernels; of the one that takes any number of query rows, unless `few_rows` may have their own."""
        return tile_of(
            self.geometry,
            sequences=call.sequences,
            query_bound=call.query_bound,
            kv_bound=call.kv_bound,
            multiprocessors=self._context.facts.multiprocessors,
            few_rows=few_rows,
            splits=self._context.splits,
        )

"""What PagedAttention and GroupQueryAttention share: the tiers over a cache that the call itself appends to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch

from pageloom.backends.cuda.attend import Cached, Strides, append, attend, gather
from pageloom.backends.cuda.context import Context
from pageloom.backends.cuda.cudnn_sdpa import SdpaForm, run_sdpa, why_not_cudnn
from pageloom.backends.cuda.geometry import Geometry, tile_of
from pageloom.backends.cuda.operator import Prepared
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.tiers import Tier

FUSED_ROWS = 64
"""Query heads of one K/V head that a fused program takes."""


class CachedCall(Prepared):
    """`query_bound` and `kv_bound` are of the new tokens and keys of any one sequence."""

    def __init__(self, context: Context, geometry: Geometry, query_bound: int, kv_bound: int) -> None:
        self._context = context
        self.geometry = geometry
        self._query_bound = query_bound
        self._kv_bound = kv_bound

    @property
    @abstractmethod
    def is_fresh(self) -> bool:
        """Whether no sequence can have a past, and all have the same number of new tokens, by what is static."""

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

    def cannot(self) -> Mapping[Tier, str]:
        geometry = self.geometry
        reasons: dict[Tier, str] = {}
        if geometry.dtype not in ("float16", "bfloat16"):
            reason = f"its tensor-core products take float16 and bfloat16, not {geometry.dtype}"
            reasons |= {"fused": reason, "triton": reason}
        if reason := self.cannot_fuse():
            reasons.setdefault("fused", reason)
        if geometry.group > FUSED_ROWS:
            reasons.setdefault("fused", f"{geometry.group} query heads share a K/V head; at most {FUSED_ROWS} fit")
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
        geometry = self.geometry
        tile = tile_of(
            geometry,
            sequences=call.sequences,
            query_bound=call.query_bound,
            kv_bound=call.kv_bound,
            multiprocessors=self._context.facts.multiprocessors,
        )
        if tier == "fused":
            attend(geometry, call, call.query, call.query_strides, tile, plan, fused=True)
            return
        query = append(geometry, call)
        strides = call.query_strides
        if geometry.prepares_query:
            width = geometry.num_heads * geometry.head_size
            strides = Strides(call.rows * width, width, geometry.head_size)
        if tier == "unfused":
            self.attend_unfused(call, query)
        elif tier == "triton":
            attend(geometry, call, query, strides, tile, plan)
        elif geometry.block_size:
            self._attend_gathered(call, query, strides, plan)
        else:
            self.attend_dense(call, query, strides, plan)

    def attend_dense(self, call: Cached, query: torch.Tensor, strides: Strides, plan: Plan) -> None:
        """Attention of cuDNN over a cache that is not paged."""
        raise NotImplementedError

    def _attend_gathered(self, call: Cached, query: torch.Tensor, strides: Strides, plan: Plan) -> None:
        """Attention of cuDNN over gathered pages; what they cannot stand for is left to our kernel."""
        geometry, rows = self.geometry, call.query_bound
        fresh = None
        if self.is_fresh and not geometry.prepares_query and call.key is not None and call.value is not None:
            fresh = call.key, call.value
        dense = gather(geometry, call, fresh)
        kv_row = geometry.kv_num_heads * geometry.head_size if fresh is None else call.kv_row
        kv_strides = (call.kv_bound * kv_row, geometry.head_size, kv_row)
        out = call.output_strides
        form = SdpaForm(
            dtype=geometry.dtype,
            batch=call.sequences,
            num_heads=geometry.num_heads,
            kv_num_heads=geometry.kv_num_heads,
            rows=rows,
            kv_rows=call.kv_bound,
            head_size=geometry.head_size,
            v_head_size=geometry.v_head_size,
            q_strides=(rows * strides.row, strides.head, strides.row),
            k_strides=kv_strides,
            v_strides=kv_strides,
            o_strides=(rows * out.row, out.head, out.row),
            scale=geometry.scale,
            causal="none" if not geometry.causal else "top-left" if fresh else "bottom-right",
            has_lengths=fresh is None,
        )
        lengths = dense.lengths if form.has_lengths else None
        run_sdpa(form, plan, query, dense.key, dense.value, call.output, lengths)
        tile = tile_of(
            geometry,
            sequences=call.sequences,
            query_bound=rows,
            kv_bound=call.kv_bound,
            multiprocessors=self._context.facts.multiprocessors,
        )
        attend(geometry, call, query, strides, tile, plan, flags=dense.flags)

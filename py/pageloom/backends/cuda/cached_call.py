"""What PagedAttention and GroupQueryAttention share: the tiers over a cache that the call itself appends to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import torch

from pageloom.backends.cuda.attend import Cached, Dense, Strides, append, attend, gather
from pageloom.backends.cuda.context import Context
from pageloom.backends.cuda.cudnn_choice import why_not_cudnn
from pageloom.backends.cuda.cudnn_sdpa import Causal, SdpaForm, run_sdpa
from pageloom.backends.cuda.geometry import Geometry, Tile, tile_of
from pageloom.backends.cuda.operator import Prepared
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.streams import join_side_stream, side_stream
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
        tile = self._tile(call)
        if tier == "fused":
            attend(geometry, call, call.query, call.query_strides, tile, plan, fused=True)
            return
        if tier == "cudnn" and (dense := self._fresh(call)) is not None:
            self._attend_fresh(call, dense, plan)
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

    def _fresh(self, call: Cached) -> Dense | None:
        """New K and V as the inputs have them, where they are all that there is to attend to."""
        if not self.geometry.block_size or not self.is_fresh or self.geometry.prepares_query:
            return None
        if call.key is None or call.value is None:
            return None
        return Dense.over(call, call.key, call.value)

    def _attend_fresh(self, call: Cached, dense: Dense, plan: Plan) -> None:
        """cuDNN over the inputs, while new K and V go to their pages; what the pages spoil is left to our kernel."""
        with side_stream(call.output.device):
            append(self.geometry, call)
            gather(self.geometry, call, dense, copies=False)
        self._run_sdpa(call, call.query, call.query_strides, dense, call.kv_row, plan, causal="top-left")
        join_side_stream(call.output.device)
        self._attend_flagged(call, call.query, call.query_strides, dense, plan)

    def _attend_gathered(self, call: Cached, query: torch.Tensor, strides: Strides, plan: Plan) -> None:
        """cuDNN over the pages gathered; what these cannot stand for is left to our kernel."""
        dense = Dense.of_pages(self.geometry, call)
        gather(self.geometry, call, dense, copies=True)
        kv_row = self.geometry.kv_num_heads * self.geometry.head_size
        self._run_sdpa(call, query, strides, dense, kv_row, plan, causal="bottom-right")
        self._attend_flagged(call, query, strides, dense, plan)

    def _run_sdpa(
        self, call: Cached, query: torch.Tensor, strides: Strides, dense: Dense, kv_row: int, plan: Plan, causal: Causal
    ) -> None:
        geometry, rows, out = self.geometry, call.query_bound, call.output_strides
        kv_strides = (call.kv_bound * kv_row, geometry.head_size, kv_row)
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
            causal=causal if geometry.causal else "none",
            has_lengths=causal == "bottom-right",
        )
        lengths = dense.lengths if form.has_lengths else None
        run_sdpa(form, plan, query, dense.key, dense.value, call.output, lengths)

    def _attend_flagged(self, call: Cached, query: torch.Tensor, strides: Strides, dense: Dense, plan: Plan) -> None:
        attend(self.geometry, call, query, strides, self._tile(call), plan, flags=dense.flags)

    def _tile(self, call: Cached) -> Tile:
        return tile_of(
            self.geometry,
            sequences=call.sequences,
            query_bound=call.query_bound,
            kv_bound=call.kv_bound,
            multiprocessors=self._context.facts.multiprocessors,
        )

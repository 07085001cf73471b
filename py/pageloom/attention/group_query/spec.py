"""Attributes of `com.microsoft.GroupQueryAttention`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pageloom.attention.cache_storage import QUANT_TYPES, QuantType
from pageloom.attention.validation import (
    require,
    require_flag,
    require_heads,
    require_one_of,
    require_real,
    require_window,
)
from pageloom.errors import NotSupported

Side = Literal["k", "v"]
SIDES: tuple[Side, ...] = ("k", "v")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQueryAttentionSpec:
    """Attributes of one GroupQueryAttention, checked as it is made.

    - `num_heads`, `kv_num_heads`: query and K/V heads; the second divides the first.
    - `scale`: multiplies q.k; None or 0 stands for 1 / sqrt(head_size).
    - `softcap`: a logit becomes softcap * tanh(logit / softcap), before the bias; 0 is off.
    - `local_window_size`: W >= 1 shows a query exactly W keys, its own included; -1 is off; needs causal.
    - `causal`: hide keys after the query's own position.
    - `do_rotary`, `rotary_interleaved`: rotate Q and new K; pairs (2i, 2i + 1) in place of halves.
    - `smooth_softmax`: 1 is a head sink of logit 0 in every head; 0 and -1 are off.
    - `qk_output`: 0 none, 1 logits after softcap and bias, 2 softmax weights; masked entries are 0.
    - `k_quant_type`, `v_quant_type`: granularity of a quantised cache's scale, of K and of V by itself.
    - `kv_cache_bit_width`: of quantised caches, 4 or 8; 0 where neither is. `k_cache_bit_width` and `v_cache_bit_width`
      override it for one side. (ONNX Runtime takes equal types and one width alone.)
    - `qk_norm_epsilon`, `q_norm_epsilon`, `k_norm_epsilon`: of the RMSNorm of Q and new K; the sides override.
    - `sliding_window_cache`: the cache holds the latest positions only, see `resident_length`.

    Raises `InvalidArgument` naming the attribute, `NotSupported` for qk_output of a sliding window cache.
    """

    num_heads: int
    kv_num_heads: int
    scale: float | None = None
    softcap: float = 0.0
    local_window_size: int = -1
    causal: bool = True
    do_rotary: bool = False
    rotary_interleaved: bool = False
    smooth_softmax: int = 0
    qk_output: int = 0
    k_quant_type: QuantType = "NONE"
    v_quant_type: QuantType = "NONE"
    kv_cache_bit_width: int = 0
    k_cache_bit_width: int | None = None
    v_cache_bit_width: int | None = None
    qk_norm_epsilon: float = 1e-6
    q_norm_epsilon: float | None = None
    k_norm_epsilon: float | None = None
    sliding_window_cache: bool = False

    def __post_init__(self) -> None:
        require_heads(self.num_heads, self.kv_num_heads)
        if self.scale is not None:
            require_real("scale", self.scale)
        require_real("softcap", self.softcap, minimum=0.0)
        require_window(self.local_window_size)
        for flag in ("causal", "do_rotary", "rotary_interleaved", "sliding_window_cache"):
            require_flag(flag, getattr(self, flag))
        require_one_of("smooth_softmax", self.smooth_softmax, (-1, 0, 1))
        require_one_of("qk_output", self.qk_output, (0, 1, 2))
        require(
            bool(self.causal) or not self.windowed,
            f"local_window_size is {self.local_window_size} with causal 0; a window needs causal 1",
            "local_window_size",
        )
        for epsilon in ("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"):
            if getattr(self, epsilon) is not None:
                require_real(epsilon, getattr(self, epsilon), minimum=0.0, exclusive=True)
        self._check_quantization()
        if self.sliding_window_cache:
            require(
                self.windowed, "sliding_window_cache is 1 without local_window_size; give W >= 1", "local_window_size"
            )
            if self.qk_output:
                raise NotSupported(
                    f"qk_output is {self.qk_output} with sliding_window_cache 1, whose columns were evicted; say 0",
                    param="qk_output",
                )

    def _check_quantization(self) -> None:
        for side in SIDES:
            quant_type, width_param = self.quant_type(side), f"{side}_cache_bit_width"
            require_one_of(f"{side}_quant_type", quant_type, QUANT_TYPES)
            allowed = (0,) if quant_type == "NONE" else (4, 8)
            width = self.bit_width(side)
            require(
                width in allowed,
                f"{side.upper()} has {width} bits with {side}_quant_type {quant_type!r}; "
                f"{' or '.join(map(str, allowed))} is allowed",
                "kv_cache_bit_width" if getattr(self, width_param) is None else width_param,
            )
        require(
            self.kv_cache_bit_width == 0 or (self.k_quant_type, self.v_quant_type) != ("NONE", "NONE"),
            f"kv_cache_bit_width is {self.kv_cache_bit_width} with k_quant_type 'NONE' and v_quant_type 'NONE'; "
            "0 is allowed",
            "kv_cache_bit_width",
        )

    def quant_type(self, side: Side) -> QuantType:
        """The granularity of one side's scale."""
        return self.k_quant_type if side == "k" else self.v_quant_type

    def bit_width(self, side: Side) -> int:
        """Bits of one side's codes, 0 where it is not quantised."""
        own = self.k_cache_bit_width if side == "k" else self.v_cache_bit_width
        if own is not None:
            return own
        return 0 if self.quant_type(side) == "NONE" else self.kv_cache_bit_width

    @property
    def windowed(self) -> bool:
        """Whether a local window is on."""
        return self.local_window_size > 0

    def logit_scale(self, head_size: int) -> float:
        """The factor of q.k."""
        return self.scale or 1.0 / math.sqrt(head_size)

    def resident_length(self, total: int, capacity: int) -> int:
        """Rows of a sliding window cache of `capacity` rows that hold the latest positions after `total` tokens.

        Where the tokens no longer fit, room is made for capacity - W + 1 at once, so the count depends on `total` alone
        and not on how the tokens were split into steps.
        """
        if total <= capacity:
            return total
        slack = capacity - self.local_window_size + 1
        return total - slack * -(-(total - capacity) // slack)

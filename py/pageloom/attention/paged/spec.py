"""Attributes of `com.microsoft.PagedAttention`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pageloom.attention.cache_storage import QUANT_TYPES, QuantType
from pageloom.attention.validation import (
    require,
    require_flag,
    require_heads,
    require_int,
    require_one_of,
    require_real,
    require_window,
)
from pageloom.errors import NotSupported

CacheLayout = Literal["SEPARATE", "LATENT"]
CACHE_DTYPES = ("", "float32", "float16", "bfloat16", "int8", "float8e4m3fn", "int4")
ROTARY_ALIGNMENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedAttentionSpec:
    """Attributes of one PagedAttention, checked as it is made.

    - `num_heads`, `kv_num_heads`: query and K/V heads; the second divides the first.
    - `scale`: multiplies q.k; None or 0 stands for 1 / sqrt(head_size).
    - `softcap`: a logit becomes softcap * tanh(logit / softcap); 0 is off.
    - `local_window_size`: W >= 1 shows a query exactly W keys, its own included; -1 is off.
    - `is_causal`: key k is visible to the token at position p iff k <= p. Off, every new token of a sequence sees all
      of the sequence, and a window bounds it on the left alone.
    - `do_rotary`, `rotary_interleaved`, `rotary_offset`: rotate Q and new K; pairs (2i, 2i + 1) in place of halves;
      first rotated channel, a multiple of 8.
    - `qk_norm_epsilon`: of the RMSNorm of Q and new K, done where the norm weights are given.
    - `k_quant_type`, `v_quant_type`: granularity of a quantised cache's scale.
    - `k_cache_dtype`, `v_cache_dtype`: logical element of the cache; '' is the tensor's own.
    - `kv_cache_layout`: LATENT keeps one cache, whose row's first `v_head_size` channels are V (absorbed MLA).
    - `v_head_size`: 0 is head_size; anything else only with LATENT, and then `scale` must be given.
    - `use_smooth_softmax`: a head sink of logit 0 in every head; the `head_sink` input is the general form.

    Raises `InvalidArgument` naming the attribute, `NotSupported` for the reserved float4e2m1.
    """

    num_heads: int
    kv_num_heads: int
    scale: float | None = None
    softcap: float = 0.0
    local_window_size: int = -1
    is_causal: bool = True
    do_rotary: bool = False
    rotary_interleaved: bool = False
    rotary_offset: int = 0
    qk_norm_epsilon: float = 1e-6
    k_quant_type: QuantType = "NONE"
    v_quant_type: QuantType = "NONE"
    k_cache_dtype: str = ""
    v_cache_dtype: str = ""
    kv_cache_layout: CacheLayout = "SEPARATE"
    v_head_size: int = 0
    use_smooth_softmax: bool = False

    def __post_init__(self) -> None:
        require_heads(self.num_heads, self.kv_num_heads)
        if self.scale is not None:
            require_real("scale", self.scale)
        require_real("softcap", self.softcap, minimum=0.0)
        require_window(self.local_window_size)
        for flag in ("is_causal", "do_rotary", "rotary_interleaved", "use_smooth_softmax"):
            require_flag(flag, getattr(self, flag))
        require_int("rotary_offset", self.rotary_offset, 0)
        require(
            self.rotary_offset % ROTARY_ALIGNMENT == 0,
            f"rotary_offset is {self.rotary_offset}; a multiple of {ROTARY_ALIGNMENT} is allowed",
            "rotary_offset",
        )
        require_real("qk_norm_epsilon", self.qk_norm_epsilon, minimum=0.0, exclusive=True)
        require_one_of("k_quant_type", self.k_quant_type, QUANT_TYPES)
        require_one_of("v_quant_type", self.v_quant_type, QUANT_TYPES)
        for param in ("k_cache_dtype", "v_cache_dtype"):
            if getattr(self, param) == "float4e2m1":
                raise NotSupported(f"{param} 'float4e2m1' is reserved and stored nowhere; use 'int4'", param=param)
            require_one_of(param, getattr(self, param), CACHE_DTYPES)
        require_one_of("kv_cache_layout", self.kv_cache_layout, ("SEPARATE", "LATENT"))
        require_int("v_head_size", self.v_head_size, 0)
        if self.latent:
            self._check_latent()

    def _check_latent(self) -> None:
        why = "with kv_cache_layout 'LATENT' V is read from the key cache"
        require(
            self.kv_num_heads == 1, f"kv_num_heads is {self.kv_num_heads}; a LATENT cache has one head", "kv_num_heads"
        )
        require(
            self.v_quant_type == "NONE", f"v_quant_type is {self.v_quant_type!r}; {why}: say 'NONE'", "v_quant_type"
        )
        require(self.v_cache_dtype == "", f"v_cache_dtype is {self.v_cache_dtype!r}; {why}: say ''", "v_cache_dtype")
        require(
            not self.use_smooth_softmax,
            "use_smooth_softmax is 1; a LATENT cache takes no sink, so say 0",
            "use_smooth_softmax",
        )

    @property
    def latent(self) -> bool:
        """Whether V is the head of the key cache's row."""
        return self.kv_cache_layout == "LATENT"

    @property
    def windowed(self) -> bool:
        """Whether a local window is on."""
        return self.local_window_size > 0

    def logit_scale(self, head_size: int) -> float:
        """The factor of q.k."""
        return self.scale or 1.0 / math.sqrt(head_size)

"""Attributes of `ai.onnx.Attention`, opsets 23 and 24."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pageloom.attention.tensors import DType
from pageloom.attention.validation import require, require_flag, require_int, require_one_of, require_real

SOFTMAX_PRECISIONS: dict[int, DType] = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""ONNX's numbers of the element types that softmax_precision may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxAttentionSpec:
    """Attributes of one Attention, checked as it is made.

    - `is_causal`: query row i sees key j iff j <= i + offset; the offset is the past's length, nonpad_kv_seqlen -
      q_sequence_length for an external cache, and 0 with neither.
    - `scale`: multiplies q.k; None stands for 1 / sqrt(head_size).
    - `softcap`: a logit becomes softcap * tanh(logit / softcap), before the mask; 0 is off.
    - `softmax_precision`: ONNX element type in which the softmax may be computed; None is the input's. Every backend
      computes at least in float32, which all of them allow.
    - `q_num_heads`, `kv_num_heads`: needed for inputs of three dimensions; the second divides the first.
    - `qk_matmul_output_mode`: of the optional output: 0 scaled q.k, 1 after softcap, 2 after softcap and mask, 3 after
      softmax.
    - `opset`: 23 has no nonpad_kv_seqlen.

    Raises `InvalidArgument` naming the attribute.
    """

    is_causal: bool = False
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None
    q_num_heads: int | None = None
    kv_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    opset: int = 24

    def __post_init__(self) -> None:
        require_flag("is_causal", self.is_causal)
        if self.scale is not None:
            require_real("scale", self.scale)
        require_real("softcap", self.softcap, minimum=0.0)
        if self.softmax_precision is not None:
            require_one_of("softmax_precision", self.softmax_precision, tuple(SOFTMAX_PRECISIONS))
        for param in ("q_num_heads", "kv_num_heads"):
            if getattr(self, param) is not None:
                require_int(param, getattr(self, param), 1)
        require(
            (self.q_num_heads is None) == (self.kv_num_heads is None),
            f"q_num_heads is {self.q_num_heads} and kv_num_heads {self.kv_num_heads}; give both or neither",
            "kv_num_heads" if self.kv_num_heads is None else "q_num_heads",
        )
        require_one_of("qk_matmul_output_mode", self.qk_matmul_output_mode, (0, 1, 2, 3))
        require_one_of("opset", self.opset, (23, 24))

    def logit_scale(self, head_size: int) -> float:
        """The factor of q.k."""
        return 1.0 / math.sqrt(head_size) if self.scale is None else self.scale

"""Which attention cuDNN takes, by what is static."""

from __future__ import annotations

from pageloom.attention.tensors import DType
from pageloom.backends.cuda.availability import DeviceFacts

OLDEST = 90300
"""cuDNN 9.3: the first whose attention is sound with lengths on the device."""
WIDEST_HEAD = 256


def why_not_cudnn(facts: DeviceFacts, dtype: DType, head_size: int, v_head_size: int) -> str:
    """The reason why cuDNN cannot do attention of these types and sizes here, or ""."""
    if facts.why_no_cudnn:
        return facts.why_no_cudnn
    if facts.cudnn < OLDEST:
        return f"cuDNN {facts.cudnn} is older than {OLDEST}"
    if facts.capability < (8, 0):
        return f"it needs compute capability 8.0; {facts.name} has {facts.capability[0]}.{facts.capability[1]}"
    if dtype not in ("float16", "bfloat16"):
        return f"it takes float16 and bfloat16, not {dtype}"
    for name, size in (("head_size", head_size), ("v_head_size", v_head_size)):
        if size % 8 or size > WIDEST_HEAD:
            return f"{name} is {size}; it takes multiples of 8 up to {WIDEST_HEAD}"
    return ""

"""The attention operators on NVIDIA GPUs: `CudaOperators().paged_attention(spec)`. Importing it needs no PyTorch."""

from __future__ import annotations

from pageloom.backends.cuda.operators import CudaOperators

__all__ = ["CudaOperators"]

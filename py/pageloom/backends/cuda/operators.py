"""Operators of ONNX on an NVIDIA GPU, each from its attributes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.scatter.spec import TensorScatterSpec
from pageloom.backends.cuda.availability import INSTALL, DeviceFacts, device_facts
from pageloom.backends.cuda.plans import PlanCache, PlanCounts
from pageloom.backends.cuda.tiers import TIERS, Tier, TierPolicy
from pageloom.errors import NotSupported

if TYPE_CHECKING:
    import torch

    from pageloom.backends.cuda.graphs import CapturedGraph
    from pageloom.backends.cuda.group_query_attention import CudaGroupQueryAttention
    from pageloom.backends.cuda.onnx_attention import CudaAttention
    from pageloom.backends.cuda.paged_attention import CudaPagedAttention
    from pageloom.backends.cuda.tensor_scatter import CudaTensorScatter

PLAN_CAPACITY = 512


class CudaOperators:
    """The operators of one device, for one stream at a time; they share plans.

    - `device`: a `torch.device`, its name, or None for the current GPU; the CPU where Triton's interpreter is on.
    - `tier` forces one tier, `forbid` names tiers that may not run unless forced, `sdpa_kernel` is ONNX Runtime's bit
      mask of kernels; its environment names (`pageloom.backends.cuda.tiers`) are read once, here.
    - `splits`: into how many parts a decode splits its keys; None takes as many as keep the GPU busy, so that the order
      of a sum depends on the number of sequences.
    - `plan_capacity`: plans that are kept; see `plans`.

    Raises `NotSupported` where PyTorch or a GPU is missing, `InvalidArgument` for an option that there is not.
    """

    tiers: tuple[Tier, ...] = TIERS

    def __init__(
        self,
        device: Any = None,
        *,
        tier: str | None = None,
        forbid: Collection[str] = (),
        sdpa_kernel: int = 0,
        splits: int | None = None,
        plan_capacity: int = PLAN_CAPACITY,
    ) -> None:
        if importlib.util.find_spec("torch") is None:
            raise NotSupported(f"CUDA is off: PyTorch is not installed: {INSTALL}", param="device")
        import torch  # noqa: PLC0415 - optional

        from pageloom.backends.cuda.context import Context  # noqa: PLC0415 - needs PyTorch

        chosen = torch.device("cuda" if device is None else device)
        facts = device_facts(chosen)
        policy = TierPolicy.of(tier=tier, forbid=forbid, sdpa_kernel=sdpa_kernel)
        is_capturing = torch.cuda.is_current_stream_capturing if chosen.type == "cuda" else lambda: False
        self._context = Context(chosen, facts, policy, PlanCache(plan_capacity, is_capturing), splits)

    @property
    def device(self) -> torch.device:
        """Where they run."""
        return self._context.device

    @property
    def facts(self) -> DeviceFacts:
        """What the device offers."""
        return self._context.facts

    @property
    def plans(self) -> PlanCounts:
        """How often a plan was found, made and dropped."""
        return self._context.plans.counts

    def paged_attention(self, spec: PagedAttentionSpec) -> CudaPagedAttention:
        """`com.microsoft.PagedAttention`."""
        from pageloom.backends.cuda.paged_attention import CudaPagedAttention  # noqa: PLC0415 - needs PyTorch

        return CudaPagedAttention(self._context, spec)

    def group_query_attention(self, spec: GroupQueryAttentionSpec) -> CudaGroupQueryAttention:
        """`com.microsoft.GroupQueryAttention`."""
        from pageloom.backends.cuda.group_query_attention import CudaGroupQueryAttention  # noqa: PLC0415

        return CudaGroupQueryAttention(self._context, spec)

    def attention(self, spec: OnnxAttentionSpec) -> CudaAttention:
        """`ai.onnx.Attention`, opsets 23 and 24."""
        from pageloom.backends.cuda.onnx_attention import CudaAttention  # noqa: PLC0415 - needs PyTorch

        return CudaAttention(self._context, spec)

    def tensor_scatter(self, spec: TensorScatterSpec) -> CudaTensorScatter:
        """`ai.onnx.TensorScatter`, opset 24."""
        from pageloom.backends.cuda.tensor_scatter import CudaTensorScatter  # noqa: PLC0415 - needs PyTorch

        return CudaTensorScatter(self._context, spec)

    def capture(self, step: Callable[[], None], *, warm_up: Callable[[], None] | None = None) -> CapturedGraph:
        """`step`, which makes calls of these operators on tensors of the device, as one CUDA graph.

        `warm_up` runs first, outside the graph, and makes the same calls, on tensors that it may spoil; without it
        every call must have run before with the same shapes. Raises `NotWarmedUp` for one that has not, `NotSupported`
        where there is no GPU.
        """
        from pageloom.backends.cuda.graphs import capture  # noqa: PLC0415 - needs PyTorch

        return capture(self._context, step, warm_up)

"""Operators of ONNX on the CPU, each from its attributes: `CpuOperators().paged_attention(spec)`."""

from __future__ import annotations

from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.scatter.spec import TensorScatterSpec
from pageloom.backends.cpu.context import CpuContext
from pageloom.backends.cpu.operators.group_query_attention import CpuGroupQueryAttention
from pageloom.backends.cpu.operators.onnx_attention import CpuOnnxAttention
from pageloom.backends.cpu.operators.paged_attention import CpuPagedAttention
from pageloom.backends.cpu.operators.tensor_scatter import CpuTensorScatter
from pageloom.backends.cpu.options import CpuOptions, Level
from pageloom.backends.cpu.tiers import TIERS, Tier


class CpuOperators:
    """The operators on this machine's CPU, which share one pool of threads; see `CpuOptions` for the options.

    They may be called from several threads of Python at once. Raises `InvalidArgument` for an option that there is not,
    `NotSupported` for an instruction set that this CPU or build lacks.
    """

    tiers: tuple[Tier, ...] = TIERS
    """Fastest first."""

    def __init__(
        self,
        *,
        threads: int | None = None,
        pin: bool | None = None,
        level: str | None = None,
        tier: str | None = None,
        approximate: str | None = None,
    ) -> None:
        options = CpuOptions.of(threads=threads, pin=pin, level=level, tier=tier, approximate=approximate)
        self._context = CpuContext(options)

    @property
    def level(self) -> Level | None:
        """The instruction set of the compiled kernels, or None where they are not installed."""
        return self._context.level

    def paged_attention(self, spec: PagedAttentionSpec) -> CpuPagedAttention:
        """`com.microsoft.PagedAttention` with the attributes `spec`."""
        return CpuPagedAttention(self._context, spec)

    def group_query_attention(self, spec: GroupQueryAttentionSpec) -> CpuGroupQueryAttention:
        """`com.microsoft.GroupQueryAttention` with the attributes `spec`."""
        return CpuGroupQueryAttention(self._context, spec)

    def attention(self, spec: OnnxAttentionSpec) -> CpuOnnxAttention:
        """`ai.onnx.Attention` with the attributes `spec`."""
        return CpuOnnxAttention(self._context, spec)

    def tensor_scatter(self, spec: TensorScatterSpec) -> CpuTensorScatter:
        """`ai.onnx.TensorScatter` with the attributes `spec`."""
        return CpuTensorScatter(self._context, spec)

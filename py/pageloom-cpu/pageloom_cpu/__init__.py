"""Compiled kernels for CPUs: one attention core for PagedAttention, GroupQueryAttention and ONNX Attention, and the
layers of a decoder around it, whose weights stay in the formats of their GGUF file.

Arrays are anything with the buffer protocol or DLPack on the CPU; numpy views with any strides will do, as long as the
channels of a row lie together. The classes bind a call to its arrays once; calling it reads lengths, tables, scales and
data anew, writes its outputs in place and allocates nothing. Shapes are checked when a call is bound, and lengths and
block ids are clamped to the arrays at every call, so that wrong ones give wrong rows but never touch other memory.
"""

from pageloom_cpu._kernels import (
    Append,
    Attention,
    Candidates,
    Embed,
    GatedLinear,
    Linear,
    Matrix,
    RmsNorm,
    SelectRows,
    Sequences,
    Step,
    info,
    levels,
    quantize,
    set_threads,
    tensor_scatter,
    unavailable_levels,
)

__all__ = [
    "Append",
    "Attention",
    "Candidates",
    "Embed",
    "GatedLinear",
    "Linear",
    "Matrix",
    "RmsNorm",
    "SelectRows",
    "Sequences",
    "Step",
    "info",
    "levels",
    "quantize",
    "set_threads",
    "tensor_scatter",
    "unavailable_levels",
]

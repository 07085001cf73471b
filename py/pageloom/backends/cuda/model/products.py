"""Matrix products whose rows do not depend on each other: a row has the same bits alone and among others.

A library's products do not serve here: they choose their kernel, and with it the order of a sum, by how many rows there
are, so that an answer would depend on what else is in the batch. Ours add up the channels in their order, on tiles of
64 rows whatever their number; and what follows a product, a sum or a gate, is part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pageloom.backends.cuda.model import kernels
from pageloom.model.layer_ops import Activation

BLOCK_M = 64
"""Rows of a tile: those of the tensor cores' widest instruction, so that every tile is computed by the same one."""
ENOUGH_PROGRAMS = 128
"""To keep a large GPU busy."""


@dataclass(frozen=True, slots=True)
class Tile:
    """`columns` of the output a program, `channels` a step, and how many steps are copied ahead."""

    columns: int
    channels: int
    num_stages: int


def tile_of(rows: int, outputs: int) -> Tile:
    """Wide tiles where there are enough of them, else narrow ones, many steps of which are on their way at once."""
    row_tiles = -(-rows // BLOCK_M)
    for columns in (128, 64, 32):
        if row_tiles * -(-outputs // columns) >= ENOUGH_PROGRAMS:
            return Tile(columns, 64, 4)
    return Tile(16, 64, 6)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    dtype: torch.dtype,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """`x @ weight.T` of float16 (+ float32 `bias`) (+ float32 `residual`), summed in float32, as `dtype`."""
    (rows, width), outputs = x.shape, weight.shape[0]
    tile = tile_of(rows, outputs)
    output = torch.empty((rows, outputs), dtype=dtype, device=x.device)
    kernels.linear_kernel[(-(-outputs // tile.columns), -(-rows // BLOCK_M))](
        x, weight, bias, residual, output, rows, outputs,
        WIDTH=width, BLOCK_M=BLOCK_M, BLOCK_N=tile.columns, BLOCK_K=tile.channels,
        HAS_BIAS=bias is not None, HAS_RESIDUAL=residual is not None, num_warps=4, num_stages=tile.num_stages,
    )  # fmt: skip
    return output


def gated_linear(x: torch.Tensor, weight: torch.Tensor, activation: Activation) -> torch.Tensor:
    """float16 `activation(x @ gate.T) * (x @ up.T)`; `weight` has the rows of the gate and then those of up."""
    (rows, width), outputs = x.shape, weight.shape[0] // 2
    tile = tile_of(rows, outputs)
    output = torch.empty((rows, outputs), dtype=torch.float16, device=x.device)
    kernels.gated_linear_kernel[(-(-outputs // tile.columns), -(-rows // BLOCK_M))](
        x, weight, output, rows, outputs,
        WIDTH=width, BLOCK_M=BLOCK_M, BLOCK_N=tile.columns, BLOCK_K=tile.channels, ACTIVATION=activation,
        num_warps=4, num_stages=tile.num_stages,
    )  # fmt: skip
    return output

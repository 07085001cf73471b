"""RMSNorm over the rows of an activation."""

from __future__ import annotations

from pageloom.backends.webgpu.device import Buffer, DeviceInfo
from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.program import PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.programs.linear import COUNTS, Rows
from pageloom.errors import InvalidArgument, NotSupported

GPU_LANES = 128
SOFTWARE_ROWS = 8


def plan_rms_norm(
    info: DeviceInfo,
    weight: Buffer,
    input: Buffer,
    output: Buffer,
    step: Buffer,
    *,
    width: int,
    epsilon: float,
    max_tokens: int,
    rows: Rows = "tokens",
    residual: Buffer | None = None,
    lanes: int | None = None,
    label: str = "rms_norm",
) -> list[PlannedDispatch]:
    """output = input * rsqrt(mean(input^2) + epsilon) * weight + residual, over rows of f32 `[max_tokens, width]`.

    `weight` is f32 `[width]`. `output` may be `input` or `residual`, not both. Rows beyond the step's are neither read
    nor written. `lanes` forces the invocations a row: 1 needs no barrier, a larger power of two shares a row.
    """
    if width % 4:
        raise NotSupported(f"RMSNorm over {width} channels; a multiple of 4 is needed")
    if input is output and residual is output:
        raise InvalidArgument("RMSNorm: input, output and residual are one buffer; at most two of them may be")
    if lanes is None:
        lanes = 1 if info.adapter_class == "software" else GPU_LANES
    rows_per_group = SOFTWARE_ROWS if lanes == 1 else 1
    buffers = [weight, output] if input is output else [weight, input, output]
    if residual is not None and residual is not output:
        buffers.append(residual)
    key = ProgramKey.of(
        "norm/rms_norm.wgsl.j2",
        width=width,
        epsilon=float(epsilon),
        count=COUNTS[rows],
        lanes=lanes,
        rows_per_group=rows_per_group,
        in_place=input is output,
        residual="none" if residual is None else "in_place" if residual is output else "buffer",
    )
    return [PlannedDispatch(key, (*buffers, step), split_grid(-(-max_tokens // rows_per_group)), label)]

"""Matrix products with weights: the choice of a variant, and its dispatches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pageloom.backends.webgpu.device import Buffer, DeviceInfo
from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.program import ParameterValue, PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.templates import half_storage
from pageloom.backends.webgpu.weights import DeviceWeight
from pageloom.errors import InvalidArgument
from pageloom.model.layer_ops import Activation

Rows = Literal["tokens", "logits_rows"]
Variant = Literal["software", "matrix_vector", "tiled"]

COUNTS: dict[Rows, str] = {"tokens": "NUM_TOKENS", "logits_rows": "NUM_LOGITS_ROWS"}
MANY_ROWS = 16384
"""From here a weight's rows alone fill a GPU, and lanes along the columns are worth less."""
MATRIX_VECTOR_TOKENS, MATRIX_VECTOR_TOKENS_OF_MANY_ROWS = 64, 16
"""Up to here lanes along the columns beat tiles (measured on an H200 with SmolLM2-135M's weights)."""


@dataclass(frozen=True, slots=True)
class LinearChoice:
    """Which template computes a product, and why."""

    variant: Variant
    reason: str


@dataclass(frozen=True, slots=True)
class Tiling:
    """What one workgroup computes, and the template's own parameters for it."""

    rows: int
    tokens: int
    parameters: Mapping[str, ParameterValue]


def choose_linear(
    info: DeviceInfo, max_tokens: int, variant: Variant | None = None, out_features: int = 0
) -> LinearChoice:
    """The variant for steps of at most `max_tokens` rows of input; `variant` forces one."""
    if variant is not None:
        return LinearChoice(variant, "the caller asked for it")
    if info.adapter_class == "software":
        return LinearChoice("software", "the adapter computes on a CPU, where barriers are slow")
    most = MATRIX_VECTOR_TOKENS if out_features < MANY_ROWS else MATRIX_VECTOR_TOKENS_OF_MANY_ROWS
    if max_tokens <= most:
        return LinearChoice("matrix_vector", f"at most {most} tokens share a weight")
    return LinearChoice("tiled", f"more than {most} tokens share a weight")


def plan_linear(
    info: DeviceInfo,
    weight: DeviceWeight,
    input: Buffer,
    output: Buffer,
    step: Buffer,
    *,
    max_tokens: int,
    rows: Rows = "tokens",
    residual: Buffer | None = None,
    bias: Buffer | None = None,
    softcap: float = 0.0,
    variant: Variant | None = None,
    label: str = "",
) -> list[PlannedDispatch]:
    """output = softcap(input @ weight.T + bias) + residual.

    `input` is f32 `[max_tokens, in_features]`, `output` and `residual` f32 `[max_tokens, out_features]`, `bias` f32
    `[out_features]`. `residual` may be `output` itself. How many rows there are is read from the step buffer; rows
    beyond are neither read nor written. One dispatch a shard.
    """
    if weight.interleaved:
        raise InvalidArgument(f"{weight.label} is interleaved for a gated linear; it is no plain matrix")
    buffers = [input, output, step]
    if bias is not None:
        buffers.append(bias)
    if residual is not None and residual is not output:
        buffers.append(residual)
    return _plan(
        weight,
        info,
        variant,
        buffers,
        max_tokens,
        label or f"linear {weight.label}",
        count=COUNTS[rows],
        bias=bias is not None,
        residual="none" if residual is None else "in_place" if residual is output else "buffer",
        activation="none",
        softcap=float(softcap),
        output_width=weight.out_features,
    )


def plan_gated_linear(
    info: DeviceInfo,
    weight: DeviceWeight,
    input: Buffer,
    output: Buffer,
    step: Buffer,
    *,
    max_tokens: int,
    activation: Activation,
    variant: Variant | None = None,
    label: str = "",
) -> list[PlannedDispatch]:
    """output = activation(input @ gate.T) * (input @ up.T), with `weight` the two interleaved, gate first.

    `output` is f32 `[max_tokens, out_features / 2]`.
    """
    if not weight.interleaved:
        raise InvalidArgument(f"{weight.label} must be loaded interleaved, gate and up in turn, for a gated linear")
    return _plan(
        weight,
        info,
        variant,
        [input, output, step],
        max_tokens,
        label or f"gated linear {weight.label}",
        count=COUNTS["tokens"],
        bias=False,
        residual="none",
        activation=activation,
        softcap=0.0,
        output_width=weight.out_features // 2,
    )


def weight_parameters(info: DeviceInfo, weight: DeviceWeight) -> dict[str, ParameterValue]:
    """What `linear/weights.wgsl.j2` takes to read `weight`."""
    encoding = weight.layout.encoding
    codes = half_storage(info) if encoding.codes == "f16" else encoding.codes
    return {
        "codes": codes,
        "scales": encoding.scales,
        "zero": encoding.zero,
        "group": encoding.group,
        "columns": weight.in_features,
    }


def _plan(
    weight: DeviceWeight,
    info: DeviceInfo,
    variant: Variant | None,
    buffers: list[Buffer],
    max_tokens: int,
    label: str,
    **parameters: ParameterValue,
) -> list[PlannedDispatch]:
    chosen = choose_linear(info, max_tokens, variant, weight.out_features).variant
    tiling = _tiling(info, chosen, max_tokens, weight)
    token_groups = -(-max_tokens // tiling.tokens)
    planned = []
    for shard in weight.shards:
        key = ProgramKey.of(
            f"linear/{chosen}.wgsl.j2",
            **weight_parameters(info, weight),
            **tiling.parameters,
            **parameters,
            first_row=shard.rows.start,
            shard_rows=len(shard.rows),
        )
        x, y, _ = split_grid(-(-len(shard.rows) // tiling.rows), info.limits["maxComputeWorkgroupsPerDimension"])
        planned.append(PlannedDispatch(key, (*shard.buffers, *buffers), (x, y, token_groups), label))
    return planned


def _tiling(info: DeviceInfo, variant: Variant, max_tokens: int, weight: DeviceWeight) -> Tiling:
    match variant:
        case "software":
            # One token: little code. Several: as many sums a thread as still compile quickly.
            rows, tokens = (4, 1) if max_tokens == 1 else (8, 4) if max_tokens <= 4 else (8, 8)
            workgroup_size = 8
            parameters = {"workgroup_size": workgroup_size, "quads": info.has_subgroups}
            parameters |= {"rows_per_thread": rows, "tokens_per_thread": tokens}
            return Tiling(rows * workgroup_size, tokens, parameters)
        case "matrix_vector":
            many = weight.out_features >= MANY_ROWS
            lanes, rows, workgroup_size = 16 if many else 32, 2 if many or weight.interleaved else 1, 64
            tokens = min(1 << (max_tokens - 1).bit_length(), 8)
            parameters = {"lanes": lanes, "workgroup_size": workgroup_size}
            parameters |= {"rows_per_thread": rows, "tokens_per_thread": tokens}
            return Tiling(workgroup_size // lanes * rows, tokens, parameters)
        case "tiled":
            wide = max_tokens > 256 and info.limits["maxComputeInvocationsPerWorkgroup"] >= 256
            rows, tokens = 64, 64 if wide else 32
            return Tiling(rows, tokens, {"tile_rows": rows, "tile_tokens": tokens})

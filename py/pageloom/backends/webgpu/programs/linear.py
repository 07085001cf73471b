"""Matrix products with weights: the choice of a variant, and its dispatches."""

from __future__ import annotations

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
MATRIX_VECTOR_TOKENS = 16
"""Up to here each weight is read by few enough token groups that keeping lanes along K beats tiles."""


@dataclass(frozen=True, slots=True)
class LinearChoice:
    """A variant with its own template parameters. A dispatch covers `rows_per_group` rows and `tokens_per_group`."""

    variant: Variant
    reason: str
    rows_per_group: int
    tokens_per_group: int
    parameters: dict[str, ParameterValue]


def choose_linear(info: DeviceInfo, max_tokens: int, variant: Variant | None = None) -> LinearChoice:
    """The variant for steps of at most `max_tokens` rows of input; `variant` forces one."""
    if variant is None:
        if info.adapter_class == "software":
            return _software(info, max_tokens, "the adapter computes on a CPU, where barriers are slow")
        if max_tokens <= MATRIX_VECTOR_TOKENS:
            return _matrix_vector(max_tokens, f"at most {MATRIX_VECTOR_TOKENS} tokens share a weight")
        return _tiled(f"more than {MATRIX_VECTOR_TOKENS} tokens share a weight")
    reason = "the caller asked for it"
    if variant == "software":
        return _software(info, max_tokens, reason)
    return _matrix_vector(max_tokens, reason) if variant == "matrix_vector" else _tiled(reason)


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
        choose_linear(info, max_tokens, variant),
        info,
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
        choose_linear(info, max_tokens, variant),
        info,
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
    choice: LinearChoice,
    info: DeviceInfo,
    buffers: list[Buffer],
    max_tokens: int,
    label: str,
    **parameters: ParameterValue,
) -> list[PlannedDispatch]:
    template = f"linear/{choice.variant}.wgsl.j2"
    token_groups = -(-max_tokens // choice.tokens_per_group)
    planned = []
    for shard in weight.shards:
        key = ProgramKey.of(
            template,
            **weight_parameters(info, weight),
            **choice.parameters,
            **parameters,
            first_row=shard.rows.start,
            shard_rows=len(shard.rows),
        )
        x, y, _ = split_grid(-(-len(shard.rows) // choice.rows_per_group))
        planned.append(PlannedDispatch(key, (*shard.buffers, *buffers), (x, y, token_groups), label))
    return planned


def _software(info: DeviceInfo, max_tokens: int, reason: str) -> LinearChoice:
    """One token: little code and many workgroups. Several: as many sums a thread as still compile quickly."""
    rows, tokens = (4, 1) if max_tokens == 1 else (8, 4) if max_tokens <= 4 else (8, 8)
    workgroup_size = 8
    return LinearChoice(
        "software",
        reason,
        rows * workgroup_size,
        tokens,
        {
            "rows_per_thread": rows,
            "tokens_per_thread": tokens,
            "workgroup_size": workgroup_size,
            "quads": info.has_subgroups,
        },
    )


def _matrix_vector(max_tokens: int, reason: str) -> LinearChoice:
    lanes, rows, tokens, workgroup_size = 32, 2, _power_of_two(max_tokens, 8), 64
    return LinearChoice(
        "matrix_vector",
        reason,
        workgroup_size // lanes * rows,
        tokens,
        {"lanes": lanes, "rows_per_thread": rows, "tokens_per_thread": tokens, "workgroup_size": workgroup_size},
    )


def _tiled(reason: str) -> LinearChoice:
    tile_rows, tile_tokens = 64, 32
    return LinearChoice("tiled", reason, tile_rows, tile_tokens, {"tile_rows": tile_rows, "tile_tokens": tile_tokens})


def _power_of_two(number: int, most: int) -> int:
    """The smallest power of two of at least `number`, or `most`."""
    return min(1 << (number - 1).bit_length(), most)

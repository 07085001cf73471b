"""From a PagedAttention call's attributes and shapes to the forms of the programs that run it: pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pageloom.attention.paged.check import PagedAttentionShape, QkvMode
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.programs.attention_choice import AttentionBucket
from pageloom.backends.webgpu.programs.attention_form import AttentionForm, ScaledBy, Sink
from pageloom.backends.webgpu.programs.elements import element_kind
from pageloom.backends.webgpu.programs.kv_write import KvWriteForm

F32_BYTES = 4
_INPUTS: dict[QkvMode, Literal["packed", "separate", "latent"]] = {
    QkvMode.PACKED: "packed",
    QkvMode.SEPARATE: "separate",
    QkvMode.LATENT: "latent",
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds of all calls that one recording serves: new tokens, and keys, of one sequence.

    `is_loose` where the bound on keys is the table's capacity, for want of a better one.
    """

    max_query_len: int
    max_kv_len: int
    is_loose: bool


def query_bytes(spec: PagedAttentionSpec, shape: PagedAttentionShape) -> int:
    """Of the prepared queries, f32."""
    return F32_BYTES * shape.num_tokens * spec.num_heads * shape.head_size


def attention_bucket(shape: PagedAttentionShape, bounds: Bounds) -> AttentionBucket:
    """Of the recording. The tokens of no sequence count as one sequence more; keys are rounded up to a power of two, so
    that programs made for a few bounds serve them all."""
    return AttentionBucket(
        max_tokens=shape.num_tokens,
        max_sequences=shape.batch_size + 1,
        max_query_len=bounds.max_query_len,
        max_kv_len=1 << max(0, bounds.max_kv_len - 1).bit_length(),
    )


def factor_names(shape: PagedAttentionShape) -> str:
    """The sections of `factors` (`programs.prepare.FACTORS`) that a call has."""
    latent = shape.mode is QkvMode.LATENT
    present = {
        "sinks": shape.has_head_sink,
        "q_norm": shape.has_qk_norm,
        "k_norm": shape.has_qk_norm,
        "k_scale": shape.key_storage.quantized,
        "v_scale": shape.value_storage.quantized and not latent,
    }
    return " ".join(name for name, there in present.items() if there)


def write_form(info: DeviceInfo, spec: PagedAttentionSpec, shape: PagedAttentionShape) -> KvWriteForm:
    """Of the dispatch that prepares Q and writes K and V."""
    return KvWriteForm(
        num_heads=spec.num_heads,
        kv_num_heads=spec.kv_num_heads,
        head_size=shape.head_size,
        scale=float(spec.logit_scale(shape.head_size)),
        input=_INPUTS[shape.mode],
        input_kind=element_kind(info, shape.dtype),
        key_kind=element_kind(info, shape.key_storage.element),
        value_kind=element_kind(info, shape.value_storage.element),
        rope="caches" if shape.rotary_dim else "none",
        rope_dim=shape.rotary_dim,
        rope_offset=spec.rotary_offset if shape.rotary_dim else 0,
        interleaved=bool(spec.rotary_interleaved),
        norm="factors" if shape.has_qk_norm else "none",
        epsilon=float(spec.qk_norm_epsilon),
        key_scaled=shape.key_storage.quantized,
        value_scaled=shape.value_storage.quantized and not spec.latent,
        factors=factor_names(shape),
    )


def attention_form(
    info: DeviceInfo, spec: PagedAttentionSpec, shape: PagedAttentionShape, *, log_sum_exp: bool
) -> AttentionForm:
    """Of the programs that attend over the pages in place."""
    scaled_by: ScaledBy = "none"
    if shape.value_storage.quantized:
        scaled_by = "k_scale" if spec.latent else "v_scale"
    sink: Sink = "factors" if shape.has_head_sink else "zero" if spec.use_smooth_softmax else "none"
    uses_factors = sink == "factors" or scaled_by != "none"
    return AttentionForm(
        num_heads=spec.num_heads,
        kv_num_heads=spec.kv_num_heads,
        head_size=shape.head_size,
        v_head_size=shape.v_head_size,
        block_size=shape.block_size,
        key_kind=element_kind(info, shape.key_storage.element),
        value_kind=element_kind(info, shape.value_storage.element),
        output_kind=element_kind(info, shape.dtype),
        softcap=float(spec.softcap),
        window=spec.local_window_size if spec.local_window_size < shape.capacity else -1,
        causal=bool(spec.is_causal),
        latent=spec.latent,
        sink=sink,
        scaled_by=scaled_by,
        factors=factor_names(shape) if uses_factors else "",
        log_sum_exp=log_sum_exp,
    )

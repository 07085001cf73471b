"""Which attention programs a device can run, and which it should run: policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.limits import ProgramNeeds, why_not
from pageloom.backends.webgpu.programs.attention_decode import (
    decode_tile,
    partials_bytes,
    reduce_workgroup,
    why_not_subgroups,
)
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.attention_tiles import prefill_tile, query_tile_tokens

Variant = Literal["software", "gpu"]
VARIANTS: tuple[Variant, ...] = ("software", "gpu")
SOFTWARE_REASON = "the adapter computes on a CPU, where workgroup barriers are slow"


@dataclass(frozen=True, slots=True)
class AttentionBucket:
    """Upper bounds of the steps that one recording serves."""

    max_tokens: int
    max_sequences: int
    max_query_len: int
    """New tokens of one sequence; 1 for a recording of decodes only."""
    max_kv_len: int
    """Keys of one sequence, its new tokens included."""

    def max_tiles(self, tile_tokens: int) -> int:
        """Query tiles of the largest step."""
        return -(-self.max_tokens // tile_tokens) + self.max_sequences


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """The variant to run, and for the other why it is not run; `without_subgroups` is the reason why decodes of the gpu
    variant exchange scores through workgroup memory, or None where they do so within subgroups, which is faster."""

    variant: Variant
    reasons: dict[Variant, str]
    without_subgroups: str | None = None


def gpu_needs(
    info: DeviceInfo, form: AttentionForm, bucket: AttentionBucket, tile_tokens: int | None = None
) -> list[ProgramNeeds]:
    """What the programs of the gpu variant take from the device."""
    decode, partials = decode_tile(form, info), partials_bytes(form, info, bucket.max_sequences, bucket.max_kv_len)
    splits = decode.splits(form, bucket.max_kv_len)
    reduce_threads, reduce_bytes = reduce_workgroup(form)
    needs = [
        ProgramNeeds(
            workgroup_size=(max(decode.workgroup_size, reduce_threads), 1, 1),
            workgroup_bytes=max(decode.workgroup_bytes, reduce_bytes),
            binding_bytes=(0,) * 6 + (partials,),
            grid=(form.num_heads, splits, bucket.max_sequences),
        )
    ]
    if bucket.max_query_len > 1:
        tile_tokens = tile_tokens or query_tile_tokens(form)
        prefill = prefill_tile(form, info, tile_tokens)
        needs.append(
            ProgramNeeds(
                workgroup_size=(prefill.threads, 1, 1),
                workgroup_bytes=prefill.workgroup_bytes,
                binding_bytes=(0,) * 7,
                grid=(form.num_heads, bucket.max_tiles(tile_tokens), 1),
            )
        )
    return needs


def why_not_gpu(
    info: DeviceInfo, form: AttentionForm, bucket: AttentionBucket, tile_tokens: int | None = None
) -> str | None:
    """The reason why the device cannot run the gpu variant, or None."""
    unmet = (why_not(needs, info) for needs in gpu_needs(info, form, bucket, tile_tokens))
    return next((reason for reason in unmet if reason is not None), None)


def choose_attention(info: DeviceInfo, form: AttentionForm, bucket: AttentionBucket) -> AttentionChoice:
    """The variant for this device and recording."""
    reason = why_not_gpu(info, form, bucket)
    if reason is None and info.adapter_class == "software":
        reason = SOFTWARE_REASON
    if reason is not None:
        return AttentionChoice("software", {"gpu": reason})
    idle = "a thread for each query head would leave most of a GPU idle"
    return AttentionChoice("gpu", {"software": idle}, why_not_subgroups(form, info))

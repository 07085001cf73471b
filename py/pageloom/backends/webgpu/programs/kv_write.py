"""Split of packed QKV, QK-norm, rotary and write to the paged cache, fused into one dispatch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from pageloom.backends.webgpu.device import Buffer, DeviceInfo
from pageloom.backends.webgpu.limits import ProgramNeeds, require, split_grid
from pageloom.backends.webgpu.program import PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.programs.attention_check import check_attention
from pageloom.backends.webgpu.programs.attention_form import bound
from pageloom.backends.webgpu.programs.elements import ElementKind, element_kind
from pageloom.engine.runner_settings import KvDtype
from pageloom.errors import InvalidArgument
from pageloom.model.layer_ops import PagedAttention

MAX_LANES = 32
Part = Literal["qkv", "query", "key", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvWriteForm:
    """What the program is made for: parameters of `kv_write.wgsl.j2`.

    - `input`: "packed" Q, K and V in one tensor, "separate" ones, or "latent": no V.
    - `rope`: no rotary, a `rope_table`, or the `cos_cache` and `sin_cache` of an operator's call.
    - `norm`: no QK-norm, or gains from two "buffers" or from `factors`.
    - `key_scaled`, `value_scaled`: whether the cache holds codes, whose scales are in `factors`.
    """

    num_heads: int
    kv_num_heads: int
    head_size: int
    scale: float
    input: Literal["packed", "separate", "latent"]
    input_kind: ElementKind
    key_kind: ElementKind
    value_kind: ElementKind
    rope: Literal["none", "table", "caches"] = "none"
    rope_dim: int = 0
    rope_offset: int = 0
    interleaved: bool = False
    norm: Literal["none", "buffers", "factors"] = "none"
    epsilon: float = 0.0
    key_scaled: bool = False
    value_scaled: bool = False
    factors: str = ""


@dataclass(frozen=True, slots=True)
class KvWriteBuffers:
    """What the program binds: `inputs` is (qkv,) or (query, key[, value]); `rope` (table,) or (cos, sin); `norms` the
    gains of Q and K."""

    inputs: tuple[Buffer, ...]
    query_out: Buffer
    key_cache: Buffer
    value_cache: Buffer | None
    step: Buffer
    rope: tuple[Buffer, ...] = ()
    norms: tuple[Buffer, ...] = ()
    factors: Buffer | None = None

    def of(self, form: KvWriteForm, part: Part) -> tuple[Buffer, ...]:
        """The bindings of a part, in the template's order."""
        outputs: dict[Part, Buffer | None] = {
            "query": self.query_out,
            "key": self.key_cache,
            "value": self.value_cache,
        }
        taken = [side for side in outputs if part in ("qkv", side)]
        inputs = self.inputs
        if form.input != "packed":
            inputs = tuple(source for side, source in zip(outputs, self.inputs, strict=False) if side in taken)
        turned = part != "value"
        uses_factors = (turned and (form.norm == "factors" or form.key_scaled)) or (
            "value" in taken and form.value_scaled
        )
        return bound(
            *inputs,
            *(outputs[side] for side in taken),
            self.step,
            *(self.rope if turned else ()),
            *(self.norms if turned else ()),
            self.factors if uses_factors else None,
        )


def plan_kv_write_parts(
    info: DeviceInfo, form: KvWriteForm, buffers: KvWriteBuffers, *, max_tokens: int, lanes: int | None = None
) -> list[PlannedDispatch]:
    """One dispatch over all heads of at most `max_tokens` tokens, or one each for Q, K and V where the device cannot
    bind everything at once. `lanes` threads share a head (a power of two; default: 1 on software adapters, where
    barriers are slow)."""
    columns = form.head_size // 4
    if lanes is None:
        lanes = 1 if info.adapter_class == "software" else min(MAX_LANES, 1 << (columns.bit_length() - 1))
    workgroup_size = 16 if lanes == 1 else 64
    heads: dict[Part, int] = {"query": form.num_heads, "key": form.kv_num_heads}
    if form.input != "latent":
        heads["value"] = form.kv_num_heads
    fused = len(buffers.of(form, "qkv")) <= info.limits["maxStorageBuffersPerShaderStage"]
    parts: dict[Part, int] = {"qkv": sum(heads.values())} if fused else heads
    planned = []
    for part, count in parts.items():
        key = ProgramKey.of(
            "paged_attention/kv_write.wgsl.j2", **asdict(form), parts=part, lanes=lanes, workgroup_size=workgroup_size
        )
        bindings = buffers.of(form, part)
        needs = ProgramNeeds(
            workgroup_size=(workgroup_size, 1, 1),
            workgroup_bytes=4 * workgroup_size,
            binding_bytes=tuple(buffer.size for buffer in bindings),
        )
        require(needs, info, "the write to the KV cache")
        grid = split_grid(-(-max_tokens * count * lanes // workgroup_size))
        planned.append(PlannedDispatch(key, bindings, grid, "kv write" if fused else f"{part} write"))
    return planned


def plan_kv_write(
    info: DeviceInfo,
    op: PagedAttention,
    qkv: Buffer,
    query_out: Buffer,
    key_cache: Buffer,
    value_cache: Buffer,
    step: Buffer,
    rope_table: Buffer | None,
    q_norm: Buffer | None,
    k_norm: Buffer | None,
    *,
    max_tokens: int,
    lanes: int | None = None,
    cache_dtype: KvDtype = "float16",
) -> list[PlannedDispatch]:
    """A decoder's write, over packed `qkv`, f32 `[max_tokens, (num_heads + 2 * kv_num_heads) * head_size]`.

    Q goes to `query_out`, f32 `[max_tokens, num_heads * head_size]`, normalised, rotated and times `op.scale`. K
    (normalised and rotated) and V go to the caches, `cache_dtype` `[num_blocks, block_size, kv_num_heads, head_size]`,
    at the step's slots; a slot of -1 or past the pool stores nothing. Values beyond the range of 16 or 8 bits saturate.

    `rope_table` holds `rope_table.rope_table(op.rope, context_length)` and is None exactly where `op.rope` is; `q_norm`
    and `k_norm` are gains, f32 `[head_size]`, and None exactly where `op` names none. `lanes` as in
    `plan_kv_write_parts`.
    """
    check_attention(op)
    _check_given("rope_table", rope_table, op.rope is not None)
    _check_given("q_norm", q_norm, op.q_norm is not None)
    _check_given("k_norm", k_norm, op.k_norm is not None)
    cache_kind = element_kind(info, cache_dtype)
    form = KvWriteForm(
        num_heads=op.num_heads,
        kv_num_heads=op.kv_num_heads,
        head_size=op.head_size,
        scale=float(op.scale),
        input="packed",
        input_kind="f32",
        key_kind=cache_kind,
        value_kind=cache_kind,
        rope="none" if op.rope is None else "table",
        rope_dim=op.rope.dim if op.rope is not None else 0,
        interleaved=op.rope is not None and op.rope.interleaved,
        norm="none" if op.q_norm is None else "buffers",
        epsilon=float(op.norm_epsilon),
    )
    norms = tuple(buffer for buffer in (q_norm, k_norm) if buffer is not None)
    rope = () if rope_table is None else (rope_table,)
    buffers = KvWriteBuffers((qkv,), query_out, key_cache, value_cache, step, rope, norms)
    return plan_kv_write_parts(info, form, buffers, max_tokens=max_tokens, lanes=lanes)


def _check_given(name: str, buffer: Buffer | None, wanted: bool) -> None:
    if (buffer is not None) != wanted:
        raise InvalidArgument(f"{name} is {'missing' if wanted else 'given, and the layer has none'}", param=name)

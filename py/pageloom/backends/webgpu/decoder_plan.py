"""A decoder's layer operations as planned dispatches over the buffers of one device."""

from __future__ import annotations

from dataclasses import dataclass

from pageloom.backends.webgpu.constraint_layout import ConstraintLayout
from pageloom.backends.webgpu.decoder_weights import DecoderWeights
from pageloom.backends.webgpu.device import Buffer, Device, DeviceInfo
from pageloom.backends.webgpu.kv_cache import PagedKvCache
from pageloom.backends.webgpu.program import PlannedDispatch
from pageloom.backends.webgpu.programs.attention import attention_scratch_bytes, plan_attention
from pageloom.backends.webgpu.programs.attention_check import decoder_form
from pageloom.backends.webgpu.programs.attention_choice import AttentionBucket, choose_attention
from pageloom.backends.webgpu.programs.attention_form import AttentionBuffers, AttentionForm
from pageloom.backends.webgpu.programs.attention_tiles import query_tile_tokens
from pageloom.backends.webgpu.programs.embed import plan_embed, plan_select_rows
from pageloom.backends.webgpu.programs.kv_write import plan_kv_write
from pageloom.backends.webgpu.programs.linear import Rows, choose_linear, plan_gated_linear, plan_linear
from pageloom.backends.webgpu.programs.norm import plan_rms_norm
from pageloom.backends.webgpu.programs.rope_table import rope_table
from pageloom.backends.webgpu.programs.sampling import ConstraintBuffers, plan_sampling, sampling_scratch_bytes
from pageloom.backends.webgpu.step_layout import StepLayout
from pageloom.engine.batch import RunnerLimits
from pageloom.errors import CapacityExceeded, NotSupported
from pageloom.model.layer_ops import (
    Decoder,
    Embed,
    GatedLinear,
    LayerOp,
    Linear,
    Logits,
    PagedAttention,
    RmsNorm,
    Rope,
    SelectRows,
)

F32_BYTES = 4
LOGITS = "logits"


@dataclass(frozen=True, slots=True)
class BodyBucket:
    """Upper bounds of the steps that one recording of the body serves."""

    max_tokens: int
    max_kv_len: int
    decodes_only: bool
    """Whether every sequence has one new token."""


@dataclass(frozen=True, slots=True)
class HeadBucket:
    """Upper bounds of the rows that one recording of the head serves."""

    max_rows: int
    num_candidates: int
    constrained: bool = False
    """Whether rows may have masks and wanted logits."""


class DecoderPlan:
    """Owns the activations, the step buffer and the candidates of one decoder, and plans its dispatches.

    Raises `CapacityExceeded` where the limits ask for a buffer that the device cannot bind.

    The *body* is every operation up to `SelectRows`; the *head* is the rest, and the search for candidates.
    """

    def __init__(
        self,
        device: Device,
        decoder: Decoder,
        weights: DecoderWeights,
        cache: PagedKvCache,
        limits: RunnerLimits,
    ) -> None:
        self._device = device
        self._info: DeviceInfo = device.info
        self._decoder = decoder
        self._weights = weights
        self._cache = cache
        self._limits = limits
        split = next(index for index, op in enumerate(decoder.ops) if isinstance(op, SelectRows))
        self._body_ops, self._head_ops = decoder.ops[:split], decoder.ops[split:]
        self._attention_ops = [op for op in decoder.ops if isinstance(op, PagedAttention)]
        # One tile length serves all layers, since one step buffer does.
        self.tile_tokens = min(query_tile_tokens(self._form(op)) for op in self._attention_ops)
        self.candidate_words = 2 * limits.max_candidates + 2
        self._values = self._allocate_values()
        longest = "max_tokens" if limits.max_tokens > limits.max_adjustments else "max_adjustments"
        self.step = self._allocate("step", F32_BYTES * StepLayout(limits, self.tile_tokens).max_words, longest)
        self.candidates = self._allocate(
            "candidates", F32_BYTES * limits.max_sequences * self.candidate_words, "max_sequences"
        )
        self.constraints = ConstraintBuffers(
            self._allocate("constraints", F32_BYTES * ConstraintLayout(limits).max_words, "max_sequences"),
            self._allocate("wanted logits", F32_BYTES * limits.max_targets, "max_targets"),
            limits.max_sequences,
        )
        widest = max(op.num_heads * op.head_size for op in self._attention_ops)
        self._query = self._allocate("query", F32_BYTES * limits.max_tokens * widest, "max_tokens")
        self._partials = self._allocate_partials()
        sampling = sampling_scratch_bytes(decoder.vocab_size, limits.max_sequences, limits.max_candidates)
        self._sampling_scratch = self._allocate("sampling scratch", sampling, "max_sequences")
        self._rope_tables = self._allocate_rope_tables()

    @property
    def weights(self) -> DecoderWeights:
        return self._weights

    @property
    def cache(self) -> PagedKvCache:
        return self._cache

    def body(self, bucket: BodyBucket) -> list[PlannedDispatch]:
        """Embedding and layers for at most `bucket.max_tokens` tokens."""
        return [planned for op in self._body_ops for planned in self._plan(op, bucket.max_tokens, "tokens", bucket)]

    def head(self, bucket: HeadBucket) -> list[PlannedDispatch]:
        """Logits of the wanted rows and their best candidates."""
        planned = [one for op in self._head_ops for one in self._plan(op, bucket.max_rows, "logits_rows", None)]
        return planned + plan_sampling(
            self._info,
            self._values[LOGITS],
            self.candidates,
            self.step,
            self._sampling_scratch,
            vocab_size=self._decoder.vocab_size,
            max_rows=bucket.max_rows,
            num_candidates=bucket.num_candidates,
            max_candidates=self._limits.max_candidates,
            constrained=self.constraints if bucket.constrained else None,
        )

    def explain(self, body: BodyBucket) -> dict[str, dict[str, str]]:
        """For each kind of operation the variant that a step of this bucket runs, and why; for attention also why not
        the other one."""
        linear = choose_linear(self._info, body.max_tokens)
        attention = choose_attention(self._info, self._form(self._attention_ops[0]), self._attention_bucket(body))
        return {
            "linear": {"variant": linear.variant, "reason": linear.reason},
            "attention": {
                "variant": attention.variant,
                **{f"not {name}": reason for name, reason in attention.reasons.items()},
                **({"not subgroups": attention.without_subgroups} if attention.without_subgroups else {}),
            },
        }

    def destroy(self) -> None:
        """Give back every buffer, the weights and the cache too."""
        self._weights.destroy()
        self._cache.destroy()
        scratch = (self.step, self.candidates, self._query, self._partials, self._sampling_scratch)
        constraints = (self.constraints.constraints, self.constraints.target_logits)
        for buffer in (*scratch, *constraints, *self._values.values(), *self._rope_tables.values()):
            if buffer is not None:
                buffer.destroy()

    def _plan(self, op: LayerOp, max_rows: int, rows: Rows, body: BodyBucket | None) -> list[PlannedDispatch]:
        info, values, vectors = self._info, self._values, self._weights.vectors
        matrices = self._weights.matrices
        match op:
            case Embed():
                return plan_embed(
                    info,
                    matrices[(op.weight,)],
                    values[op.output],
                    self.step,
                    self.candidates,
                    candidate_words=self.candidate_words,
                    scale=op.scale,
                    max_tokens=max_rows,
                )
            case RmsNorm():
                return plan_rms_norm(
                    info,
                    vectors[(op.weight,)],
                    values[op.input],
                    values[op.output],
                    self.step,
                    width=self._decoder.widths[op.input],
                    epsilon=op.epsilon,
                    max_tokens=max_rows,
                    rows=rows,
                    residual=values[op.residual] if op.residual else None,
                )
            case Linear():
                return plan_linear(
                    info,
                    matrices[op.weights],
                    values[op.input],
                    values[op.output],
                    self.step,
                    max_tokens=max_rows,
                    rows=rows,
                    residual=values[op.residual] if op.residual else None,
                    bias=vectors[op.biases] if any(op.biases) else None,
                )
            case GatedLinear():
                return plan_gated_linear(
                    info,
                    matrices[(op.gate, op.up)],
                    values[op.input],
                    values[op.output],
                    self.step,
                    max_tokens=max_rows,
                    activation=op.activation,
                )
            case PagedAttention():
                return self._plan_attention(op, body)
            case SelectRows():
                return plan_select_rows(
                    values[op.input],
                    values[op.output],
                    self.step,
                    width=self._decoder.widths[op.input],
                    max_rows=max_rows,
                )
            case Logits():
                return plan_linear(
                    info,
                    matrices[(op.weight,)],
                    values[op.input],
                    values[LOGITS],
                    self.step,
                    max_tokens=max_rows,
                    rows=rows,
                    softcap=op.softcap,
                    label="logits",
                )

    def _plan_attention(self, op: PagedAttention, body: BodyBucket | None) -> list[PlannedDispatch]:
        if body is None:
            raise NotSupported(f"layer {op.layer} attends after the rows are selected")
        info, vectors = self._info, self._weights.vectors
        keys, values = self._cache.keys[op.layer], self._cache.values[op.layer]
        write = plan_kv_write(
            info,
            op,
            self._values[op.qkv],
            self._query,
            keys,
            values,
            self.step,
            self._rope_tables.get(op.rope),
            vectors[(op.q_norm,)] if op.q_norm else None,
            vectors[(op.k_norm,)] if op.k_norm else None,
            max_tokens=body.max_tokens,
            cache_dtype=self._cache.dtype,
        )
        attend = plan_attention(
            info,
            self._form(op),
            AttentionBuffers(self._query, keys, values, self._values[op.output], self.step, self._partials),
            bucket=self._attention_bucket(body),
            tile_tokens=self.tile_tokens,
        )
        return write + attend

    def _form(self, op: PagedAttention) -> AttentionForm:
        return decoder_form(self._info, op, self._cache.block_size, self._cache.dtype)

    def _attention_bucket(self, body: BodyBucket) -> AttentionBucket:
        return AttentionBucket(
            max_tokens=body.max_tokens,
            max_sequences=min(body.max_tokens, self._limits.max_sequences),
            max_query_len=1 if body.decodes_only else body.max_tokens,
            max_kv_len=body.max_kv_len,
        )

    def _allocate(self, name: str, size: int, param: str) -> Buffer:
        """A buffer whose size `param`, one of the limits, decides."""
        most = min(self._info.limits["maxStorageBufferBindingSize"], self._info.limits["maxBufferSize"])
        if size > most:
            raise CapacityExceeded(
                f"{param} is {getattr(self._limits, param)}: the buffer {name!r} would take {size} bytes, and this "
                f"device binds {most}; take fewer",
                param=param,
            )
        return self._device.buffer(size, name)

    def _allocate_values(self) -> dict[str, Buffer]:
        """A buffer for every named value: rows for all tokens in the body, for the wanted rows in the head."""
        head_names = {op.output for op in self._head_ops if not isinstance(op, Logits)} | {LOGITS}
        values: dict[str, Buffer] = {}
        for name, width in {**self._decoder.widths, LOGITS: self._decoder.vocab_size}.items():
            param = "max_sequences" if name in head_names else "max_tokens"
            values[name] = self._allocate(name, F32_BYTES * width * getattr(self._limits, param), param)
        return values

    def _allocate_partials(self) -> Buffer | None:
        limits = self._limits
        longest = limits.max_blocks_per_sequence * limits.block_size
        bucket = self._attention_bucket(BodyBucket(limits.max_tokens, longest, decodes_only=False))
        size = max(attention_scratch_bytes(self._info, self._form(op), bucket) for op in self._attention_ops)
        return self._allocate("attention partials", size, "max_sequences") if size else None

    def _allocate_rope_tables(self) -> dict[Rope | None, Buffer]:
        limits = self._limits
        positions = limits.max_blocks_per_sequence * limits.block_size
        tables: dict[Rope | None, Buffer] = {}
        for rope in {op.rope for op in self._attention_ops if op.rope is not None}:
            table = rope_table(rope, positions)
            tables[rope] = self._device.buffer(F32_BYTES * len(table), "rope table")
            self._device.write(tables[rope], 0, table)
        return tables

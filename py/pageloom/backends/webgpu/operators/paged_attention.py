"""`com.microsoft.PagedAttention` on a WebGPU device."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pageloom.attention.paged.check import PagedAttentionShape, check_shapes
from pageloom.attention.paged.host_values import check_lengths, check_metadata
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.tensors import Tensor, TensorInfo
from pageloom.backends.webgpu.device import Device, Dispatch
from pageloom.backends.webgpu.operators.call import Call
from pageloom.backends.webgpu.operators.direct import plan_direct
from pageloom.backends.webgpu.operators.forms import Bounds, attention_bucket, attention_form, query_bytes
from pageloom.backends.webgpu.operators.gather import dense_bytes, plan_gather_then_flash
from pageloom.backends.webgpu.operators.operands import DeviceTensor, Operand, as_operand
from pageloom.backends.webgpu.operators.tiers import Tier, WebGpuExplanation, choose_tier
from pageloom.backends.webgpu.operators.workspace import Workspace, check_binding, why_not_bind
from pageloom.backends.webgpu.program import PlannedDispatch, Programs
from pageloom.backends.webgpu.programs.attention_choice import why_not_gpu
from pageloom.backends.webgpu.programs.attention_decode import decodes_without
from pageloom.errors import InvalidArgument, NotSupported, PageloomError

ALIASES = {"key_cache_out": "key_cache", "value_cache_out": "value_cache"}


class RecordedPagedAttention:
    """A call that `submit` replays: the device reads every tensor anew, the integer ones too.

    `inputs` are the tensors it reads, `outputs` those it writes; caches are in both. Tensors that were host memory were
    copied once, into buffers that are freed by `release`, as are the outputs that it does not keep. `commands` are the
    call's dispatches in order, for a recording of the caller's own.
    """

    def __init__(
        self,
        device: Device,
        workspace: Workspace,
        commands: Sequence[Dispatch],
        inputs: dict[str, DeviceTensor],
        outputs: dict[str, DeviceTensor],
        explanation: WebGpuExplanation,
    ) -> None:
        self._device = device
        self._workspace = workspace
        self._recording = device.record(commands, "PagedAttention") if commands else None
        self.commands = tuple(commands)
        self.inputs = inputs
        self.outputs = outputs
        self.explanation = explanation

    def submit(self) -> None:
        """Queue the call once more; nothing is read back."""
        if self._recording is not None:
            self._device.submit(self._recording)

    def release(self, *kept: str) -> None:
        """Free all buffers that the call made, but those of the outputs `kept`, which become the caller's."""
        self._workspace.release(*(self.outputs[name] for name in kept))


class WebGpuPagedAttention:
    """The operator with its attributes.

    Inputs go by their ONNX names. Each may be an array (numpy's, `Tensor`, anything with the buffer protocol) or a
    `DeviceTensor`, which is used where it lies; caches are then updated in place. `attention_metadata` stays on the
    host: bounds of every call that a recording serves. Without it grids are sized by the shapes; nothing is read back
    to size them. Lengths in host memory are checked; what the device alone knows has the meaning that
    `pageloom.attention.paged.check` gives it.
    """

    def __init__(self, device: Device, programs: Programs, spec: PagedAttentionSpec) -> None:
        self._device = device
        self._programs = programs
        self.spec = spec

    def explain(self, *, tier: Tier | None = None, log_sum_exp: bool = False, **inputs: Any) -> WebGpuExplanation:
        """The tier that would run such a call, the reason against every faster one, and what its decodes do without.
        Raises as `run` does."""
        shape, bounds, _ = self._checked(inputs)
        return self._explained(shape, bounds, tier, log_sum_exp)

    async def run(
        self, query: Any, *, tier: Tier | None = None, log_sum_exp: bool = False, **inputs: Any
    ) -> dict[str, Operand]:
        """The outputs by name: `output`, `key_cache_out`, `value_cache_out` unless LATENT, and `log_sum_exp`, float32
        `[num_tokens, num_heads]`, where asked for.

        An output is a `DeviceTensor` where its input is one (that of `output` and `log_sum_exp` is `query`), and a
        `Tensor` otherwise. A cache output given as an input names where it should be: the input's own buffer.
        `tier` forces a tier.

        Raises `InvalidArgument` for inputs that break the contract, `NotSupported` for a tier or tensors that the
        device cannot do.
        """
        call = await self.record(query=query, tier=tier, log_sum_exp=log_sum_exp, **inputs)
        given = {"query": query, **inputs}
        stays = [
            name
            for name in call.outputs
            if isinstance(given[ALIASES.get(name, "query")], DeviceTensor) and name not in ALIASES
        ]
        try:
            call.submit()
            results: dict[str, Operand] = {}
            for name, tensor in call.outputs.items():
                if isinstance(given[ALIASES.get(name, "query")], DeviceTensor):
                    results[name] = tensor
                else:
                    data = await self._device.read(tensor.buffer, 0, -(-tensor.info.num_bytes // 4) * 4)
                    results[name] = Tensor(tensor.info, memoryview(data)[: tensor.info.num_bytes])
        finally:
            call.release(*stays)
        return results

    def __call__(self, query: Any, **inputs: Any) -> dict[str, Operand]:
        """`run`, waited for; for programs without an event loop, so never in a browser."""
        return asyncio.run(self.run(query, **inputs))

    async def record(
        self, *, tier: Tier | None = None, log_sum_exp: bool = False, **inputs: Any
    ) -> RecordedPagedAttention:
        """A call to be replayed. Raises as `run` does."""
        shape, bounds, operands = self._checked(inputs)
        explanation = self._explained(shape, bounds, tier, log_sum_exp)
        workspace = Workspace(self._device)
        try:
            tensors = {name: workspace.place(name, operand) for name, operand in operands.items()}
            heads = self.spec.num_heads
            output = workspace.tensor("output", TensorInfo(shape.dtype, (shape.num_tokens, heads * shape.v_head_size)))
            statistics = TensorInfo("float32", (shape.num_tokens, heads))
            lse = workspace.tensor("log_sum_exp", statistics) if log_sum_exp else None
            outputs = {"output": output} | {out: tensors[name] for out, name in ALIASES.items() if name in tensors}
            if lse is not None:
                outputs["log_sum_exp"] = lse
            commands: list[Dispatch] = []
            if shape.num_tokens:
                call = Call(self._device, workspace, self.spec, shape, tensors, output, lse)
                planned = _plan(call, explanation.tier, bounds)
                pipelines = await asyncio.gather(*(self._programs.pipeline(one.key) for one in planned))
                commands = [
                    Dispatch(pipeline, one.buffers, one.grid, one.label, one.indirect)
                    for pipeline, one in zip(pipelines, planned, strict=True)
                ]
                await self._device.settle()
            return RecordedPagedAttention(self._device, workspace, commands, tensors, outputs, explanation)
        except BaseException:
            workspace.release()
            with suppress(PageloomError):
                await self._device.settle()  # nobody else hears what became of the buffers
            raise

    def _checked(self, inputs: dict[str, Any]) -> tuple[PagedAttentionShape, Bounds, dict[str, Operand]]:
        operands = {name: as_operand(name, value) for name, value in inputs.items() if value is not None}
        aliases = {name: operands.pop(name) for name in ALIASES if name in operands}
        shape = check_shapes(self.spec, {name: operand.info for name, operand in operands.items()})
        for name, operand in operands.items():
            check_binding(self._device, name, operand.info.num_bytes)
        if shape.v_head_size % 4:
            raise NotSupported(
                f"v_head_size is {shape.v_head_size}; the programs here take multiples of 4", param="v_head_size"
            )
        for name, given in aliases.items():
            _check_alias(name, given, operands.get(ALIASES[name]))
        _check_apart({name: operand for name, operand in operands.items() if isinstance(operand, DeviceTensor)})
        metadata = operands.pop("attention_metadata", None)
        if isinstance(metadata, DeviceTensor):
            raise InvalidArgument(
                "attention_metadata is in device memory; it sizes grids and must be in host memory",
                param="attention_metadata",
            )
        entries = _integers(metadata) if metadata is not None else [0, 0]
        query_bound, kv_bound, _ = check_metadata(shape, entries)
        cumulative, past = operands["cumulative_sequence_length"], operands["past_seqlens"]
        if isinstance(cumulative, Tensor) and isinstance(past, Tensor):
            check_lengths(shape, _integers(cumulative), _integers(past))
        return shape, Bounds(query_bound, kv_bound, is_loose=not entries[1]), operands

    def _explained(
        self, shape: PagedAttentionShape, bounds: Bounds, tier: Tier | None, log_sum_exp: bool
    ) -> WebGpuExplanation:
        form = attention_form(self._device.info, self.spec, shape, log_sum_exp=log_sum_exp)
        why_not: dict[Tier, str | None] = {
            "direct-gpu": f"v_head_size is {shape.v_head_size}; its programs take multiples of 8"
            if shape.v_head_size % 8
            else why_not_gpu(self._device.info, form, attention_bucket(shape, bounds)),
            "direct-software": why_not_bind(self._device, {"query in f32": query_bytes(self.spec, shape)}),
            "gather-then-flash": why_not_bind(self._device, dense_bytes(self.spec, shape, bounds)),
        }
        chosen = choose_tier(self._device.info, why_not, tier)
        without = decodes_without(form, self._device.info) if chosen.tier == "direct-gpu" else {}
        return WebGpuExplanation(chosen.tier, chosen.reasons, without)


def _plan(call: Call, tier: Tier, bounds: Bounds) -> list[PlannedDispatch]:
    if tier == "gather-then-flash":
        return plan_gather_then_flash(call, bounds)
    return plan_direct(call, "gpu" if tier == "direct-gpu" else "software", bounds)


def _integers(tensor: Tensor) -> list[int]:
    return list(tensor.data.cast("B").cast("i"))


def _check_alias(name: str, given: Operand, cache: Operand | None) -> None:
    same = (
        isinstance(given, DeviceTensor)
        and isinstance(cache, DeviceTensor)
        and given.buffer is cache.buffer
        and given.info == cache.info
    )
    if not same:
        raise InvalidArgument(
            f"{name} is not the buffer of {ALIASES[name]}; a cache is updated in place: give the same DeviceTensor, or "
            f"leave {name} out",
            param=name,
        )


def _check_apart(tensors: Mapping[str, DeviceTensor]) -> None:
    """The caches are written, so no other input may share their buffers."""
    for written in ALIASES.values():
        for name, tensor in tensors.items():
            if written in tensors and name != written and tensor.buffer is tensors[written].buffer:
                raise InvalidArgument(f"{name} and {written} share a buffer, and {written} is written", param=name)

"""Every weight of a decoder on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pageloom.backends.webgpu.device import Buffer, Device
from pageloom.backends.webgpu.program import Programs
from pageloom.backends.webgpu.weights import DeviceWeight, load_vector, load_weight
from pageloom.model.decoder import ModelDescription
from pageloom.model.gguf import TensorInfo
from pageloom.model.layer_ops import Embed, GatedLinear, LayerOp, Linear, Logits, PagedAttention, RmsNorm
from pageloom.model.source import RangedSource
from pageloom.progress import OnProgress, Progress, ignore_progress


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """`matrices` by the names of the tensors whose rows they hold, `vectors` (norm gains, biases) likewise."""

    matrices: dict[tuple[str, ...], DeviceWeight]
    vectors: dict[tuple[str | None, ...], Buffer]

    @property
    def num_bytes(self) -> int:
        """Device memory that they take."""
        return sum(weight.layout.bytes for weight in self.matrices.values()) + sum(
            buffer.size for buffer in self.vectors.values()
        )

    def destroy(self) -> None:
        for weight in self.matrices.values():
            weight.destroy()
        for buffer in self.vectors.values():
            buffer.destroy()


async def load_decoder_weights(
    device: Device,
    programs: Programs,
    source: RangedSource,
    description: ModelDescription,
    on_progress: OnProgress = ignore_progress,
) -> DecoderWeights:
    """Upload and repack every weight. What was loaded is given back where one fails; raises as `load_weight` does."""
    tensors, ops = description.gguf.tensors, description.decoder.ops
    all_matrices = list(matrices(ops))
    total = sum(tensors[name].size for names, _ in all_matrices for name in names)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        on_progress(Progress("weights", done, total))

    weights = DecoderWeights({}, {})
    try:
        for names, interleaved in all_matrices:
            weights.matrices[names] = await load_weight(
                device,
                programs,
                source,
                [tensors[name] for name in names],
                names[0],
                interleaved=interleaved,
                on_bytes=on_bytes,
            )
        for op in ops:
            for vector, parts in _vectors(op, tensors):
                if vector not in weights.vectors:
                    weights.vectors[vector] = await load_vector(device, source, parts, str(vector[0]))
        await device.settle()
    except BaseException:
        weights.destroy()
        raise
    return weights


def matrices(ops: tuple[LayerOp, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """(tensor names, whether their rows interleave) of each matrix, each once: a tied embedding is loaded once."""
    found: dict[tuple[str, ...], bool] = {}
    for op in ops:
        match op:
            case Embed() | Logits():
                found.setdefault((op.weight,), False)
            case Linear():
                found.setdefault(op.weights, False)
            case GatedLinear():
                found.setdefault((op.gate, op.up), True)
            case _:
                pass
    return iter(found.items())


def _vectors(
    op: LayerOp, tensors: dict[str, TensorInfo]
) -> Iterator[tuple[tuple[str | None, ...], list[TensorInfo | int]]]:
    """(names, parts) of each vector that an operation reads; the rows of a weight without a bias get zeros."""
    match op:
        case RmsNorm():
            yield (op.weight,), [tensors[op.weight]]
        case PagedAttention():
            for name in (op.q_norm, op.k_norm):
                if name is not None:
                    yield (name,), [tensors[name]]
        case Linear() if any(op.biases):
            yield (
                op.biases,
                [
                    tensors[weight].shape[0] if bias is None else tensors[bias]
                    for weight, bias in zip(op.weights, op.biases, strict=True)
                ],
            )
        case _:
            pass

"""`pageloom bench` on an NVIDIA GPU: our tiers, PyTorch's attention and the limit, in turns and in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pageloom import __version__
from pageloom.backends.cuda import CudaOperators
from pageloom.backends.cuda.tiers import Tier
from pageloom.commands.bench_output import BenchOutput, choose_shapes
from pageloom.commands.bench_shapes import HEADLINES, LLAMA_3, PEER, PEER_GPU, PEER_SECONDS, Shape
from pageloom.commands.terminal import ProgressLine

BLOCK_SIZES = (16, 256)
SHAPES: Sequence[Shape] = (*HEADLINES, replace(LLAMA_3, batch=4, new=2048))
EXTERNAL: Sequence[tuple[Shape, int]] = tuple(
    (replace(LLAMA_3, past=past), capacity) for past in (511, 4095) for capacity in (past + 1, 8192)
)
"""Attention 24 of one token over an external cache of a capacity."""
PEER_EXTERNAL_SECONDS = {(512, 512): 15.16e-6, (512, 8192): 15.33e-6, (4096, 4096): 19.0e-6, (4096, 8192): 19.03e-6}
"""The peer's Attention 24 on the same GPU, by keys and capacity."""
_WIDTHS = (36, 30, 10, 8, 10, 9)
_HEADINGS = ("shape", "what", "µs", "spread", "limit µs", "x limit")


def run_on_cuda(options: argparse.Namespace, output: BenchOutput) -> dict[str, Any]:
    """Measure, print a table, and return it as JSON.

    Raises `NotSupported` where there is no GPU, `InvalidArgument` where no shape is left.
    """
    todo = choose_shapes([*((shape, 0) for shape in SHAPES), *EXTERNAL], options.shape, _title)
    operators = CudaOperators()
    facts = operators.facts
    from pageloom.commands import bench_cuda_calls as calls  # noqa: PLC0415 - needs PyTorch

    output.say(f"adapter: {facts.describe()}")
    calls.warm_up()
    bytes_a_second, operations_a_second = calls.rates()
    output.say(
        f"limits: copies {bytes_a_second / 1e12:.2f} TB/s, computes {operations_a_second / 1e12:.0f} TFLOP/s in float16"
    )
    output.say("each call is one of a chain in a CUDA graph, with a cache of its own; PagedAttention appends too")
    quotes = PEER_GPU in facts.name
    output.say("\n" + _line(_HEADINGS))
    progress = ProgressLine(sys.stderr)
    rows: list[dict[str, Any]] = []
    for number, (shape, capacity) in enumerate(todo):
        title = _title((shape, capacity))
        progress.show("Measuring", number, len(todo), title)
        layers = calls.layers_of(shape)
        steps = _external(operators, shape, capacity, layers) if capacity else _paged(operators, shape, layers)
        limit = shape.limit_seconds(bytes_a_second, operations_a_second)
        peer = PEER_EXTERNAL_SECONDS[shape.past + 1, capacity] if capacity else PEER_SECONDS.get(shape)
        progress.clear()
        measured: list[dict[str, Any]] = []
        for timed in calls.measure(steps, layers, options.repeats):
            output.say(_row(title, timed, limit, peer if quotes else None))
            measured.append(
                {"shape": title, "what": timed.name, "seconds": timed.seconds, "reason": timed.reason, "limit": limit,
                 "peer_seconds": peer}
            )  # fmt: skip
        output.tell(measured, len(todo))
        rows += measured
    return {
        "pageloom": __version__,
        "adapter": asdict(facts),
        "copied_bytes_per_second": bytes_a_second,
        "operations_per_second": operations_a_second,
        "peer": {"name": PEER, "gpu": PEER_GPU},
        "results": rows,
    }


def _paged(operators: CudaOperators, shape: Shape, layers: int) -> dict[str, Any]:
    from torch.nn.attention import SDPBackend  # noqa: PLC0415 - optional

    from pageloom.commands import bench_cuda_calls as calls  # noqa: PLC0415 - needs PyTorch
    from pageloom.commands import bench_cuda_peers as peers  # noqa: PLC0415 - needs PyTorch

    tiers: tuple[Tier, ...] = ("fused", "triton") if shape.new == 1 else ("cudnn", "triton")
    steps: dict[str, Any] = {
        f"{tier}, blocks of {block_size}": calls.paged_step(
            operators, calls.with_block_size(shape, block_size), layers, tier
        )
        for tier in tiers
        if not (tier == "cudnn" and shape.cache == "int8")
        for block_size in BLOCK_SIZES
    }
    if shape.cache == "float16":
        steps |= {
            f"cuDNN paged, blocks of {block_size}": peers.cudnn_paged_step(
                calls.with_block_size(shape, block_size), layers
            )
            for block_size in BLOCK_SIZES
        }
        steps |= {
            f"PyTorch {name}, dense": peers.torch_step(shape, layers, backend)
            for name, backend in (
                ("cuDNN", SDPBackend.CUDNN_ATTENTION),
                ("Flash", SDPBackend.FLASH_ATTENTION),
                ("efficient", SDPBackend.EFFICIENT_ATTENTION),
            )
        }
    return steps


def _external(operators: CudaOperators, shape: Shape, capacity: int, layers: int) -> dict[str, Any]:
    from pageloom.commands import bench_cuda_calls as calls  # noqa: PLC0415 - needs PyTorch

    tiers: tuple[Tier, ...] = ("triton", "cudnn")
    return {f"Attention 24, {tier}": calls.external_step(operators, shape, capacity, layers, tier) for tier in tiers}


def _title(call: tuple[Shape, int]) -> str:
    """Of a shape and the capacity of its external cache, 0 where it has none."""
    shape, capacity = call
    return f"{shape} of {capacity}" if capacity else str(shape)


def _row(title: str, timed: Any, limit: float, peer: float | None) -> str:
    if not timed.seconds:
        return f"{_line((title, timed.name))}  not run: {timed.reason}"
    median = timed.median
    line = _line(
        (
            title,
            timed.name,
            f"{median * 1e6:.2f}",
            f"{100 * timed.spread:.0f} %",
            f"{limit * 1e6:.2f}",
            f"{median / limit:.2f}",
        )
    )
    if peer is not None and not timed.name.startswith(("PyTorch", "cuDNN")):
        line += f"  {median / peer:.2f} of {peer * 1e6:.1f} µs ({PEER})"
    return line


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=False)).rstrip()

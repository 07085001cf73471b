"""`pageloom bench`: attention on this machine's adapter, tier by tier, or on its CPU, beside what limits it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pageloom import __version__
from pageloom.backends.webgpu.native import open_native_device
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.commands.batch_files import PREFERENCES
from pageloom.commands.bench_calls import Measured, measure
from pageloom.commands.bench_device import Rates, measure_rates
from pageloom.commands.bench_output import BenchOutput, choose_shapes
from pageloom.commands.bench_shapes import FULL, PEER, PEER_GPU, PEER_SECONDS, QUICK, SMALL, Shape
from pageloom.commands.check_summary import describe_adapter
from pageloom.commands.json_file import json_file
from pageloom.commands.terminal import ProgressLine
from pageloom.conformance.adapter import adapter_fields
from pageloom.errors import InvalidArgument

GATHER = "gather-then-flash"
_WIDTHS = (34, 18, 10, 8, 13, 10, 8, 10, 10)
_HEADINGS = ("shape", "tier", "call µs", "spread", "attention µs", "limit µs", "x limit", "x gather", "TFLOP/s")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure the attention operators on this machine",
        description="Measures each tier of PagedAttention in turns, by the device's own clock where it has one, beside "
        "the limits of the adapter: what must be moved over the rate at which it reads, and what must be computed over "
        "the rate at which it computes, both measured in the same run. A call appends K and V before it attends; "
        "attention alone stands beside it, and is compared with the limits. With --backend cpu: the CPU's kernels, in "
        "pairs with those of ONNX Runtime. With --backend cuda: an NVIDIA GPU's tiers, beside PyTorch's attention.",
    )
    parser.add_argument("--backend", choices=("webgpu", "cpu", "cuda"), default="webgpu", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="the main shapes only")
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="of each measurement; default: %(default)s")
    parser.add_argument("--gpu", choices=PREFERENCES, default="auto", help="the kind of adapter; default: %(default)s")
    parser.add_argument("--shape", default="*", metavar="GLOB", help="shapes whose name matches, such as 'decode*'")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement")
    parser.add_argument("--lines", action="store_true", help="say what is measured of each shape as a line of JSON")
    cpu = parser.add_argument_group("with --backend cpu")
    cpu.add_argument("--peer", choices=("onnxruntime",), default="onnxruntime", help="default: %(default)s")
    cpu.add_argument("--threads", type=int, nargs="+", metavar="N", help="default: 1 and 2")
    cpu.add_argument("--level", metavar="NAME", help="the instruction set; default: the best that there is")
    cpu.add_argument(
        "--part", nargs="+", metavar="NAME", help="decode, paged, split, prefill, call, memory; default: all"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.repeats < 1:
        raise InvalidArgument(f"--repeats is {options.repeats}; at least 1 is needed", param="repeats")
    output = BenchOutput(options.lines)
    with json_file(options.json) as write:
        if options.backend == "cpu":
            from pageloom.commands.bench_cpu import run_on_cpu  # noqa: PLC0415 - needs numpy, which is optional

            result = run_on_cpu(options, output)
        elif options.backend == "cuda":
            from pageloom.commands.bench_cuda import run_on_cuda  # noqa: PLC0415 - needs numpy, which is optional

            result = run_on_cuda(options, output)
        else:
            result = _as_json(*asyncio.run(_measure(options, output)))
        output.tell_result(result)
        write(result)
    return 0


async def _measure(options: argparse.Namespace, output: BenchOutput) -> tuple[dict[str, Any], Rates, list[Measured]]:
    progress = ProgressLine(sys.stderr)
    device = await open_native_device(prefer=PREFERENCES[options.gpu])
    try:
        adapter = adapter_fields(device.info)
        output.say(f"adapter: {describe_adapter(adapter)}")
        if "timestamp-query" not in device.info.features:
            output.say("it has no clock of its own (timestamp-query): times are the host's and include the submission")
        programs = ProgramCache(device)
        operators = WebGpuOperators(device, programs)
        shapes: Sequence[Shape] = QUICK if options.quick else FULL
        if device.info.adapter_class == "software":
            shapes = SMALL
            output.say("it computes on a CPU: small shapes only, and ratios rather than times")
        shapes = choose_shapes(shapes, options.shape)
        rates = await measure_rates(device, programs)
        output.say(f"limits: reads {rates.read / 1e9:.1f} GB/s, computes {rates.compute / 1e12:.3f} TFLOP/s in f32")
        quotes = PEER_GPU in device.info.description
        output.say("\n" + _line(_HEADINGS))
        results: list[Measured] = []
        for number, shape in enumerate(shapes):
            progress.show("Measuring", number, len(shapes), str(shape))
            measured = await measure(device, operators, shape, options.repeats)
            results += measured
            progress.clear()
            lines = shape_lines(measured, rates, quotes=quotes) + cache_lines(measured, results)
            output.say("\n".join(lines))
            output.tell([one.to_fields(rates) for one in measured], len(shapes))
        return adapter, rates, results
    finally:
        device.close()


def shape_lines(measured: Sequence[Measured], rates: Rates, *, quotes: bool) -> list[str]:
    """A line for each tier of one shape; `quotes` adds what the peer takes on the same GPU."""
    gather = next((one.median for one in measured if one.tier == GATHER), None)
    lines = []
    for one in measured:
        shape, median = one.shape, one.median
        if median is None:
            lines.append(f"{_line((str(shape), one.tier))}  not run: {one.reason}")
            continue
        limit = shape.limit_seconds(rates.read, rates.compute)
        attention = one.attention_median
        cells = [str(shape), one.tier, f"{median * 1e6:.1f}", f"{100 * one.spread:.0f} %"]
        cells += [f"{attention * 1e6:.1f}" if attention else "-", f"{limit * 1e6:.1f}"]
        cells += [f"{(attention or median) / limit:.2f}", f"{gather / median:.2f}" if gather else ""]
        cells += [f"{shape.num_operations / (attention or median) / 1e12:.3g}" if shape.new > 1 else ""]
        line = _line(cells)
        if quotes and shape in PEER_SECONDS:
            line += f"  {median / PEER_SECONDS[shape]:.2f} of {PEER_SECONDS[shape] * 1e6:.1f} µs ({PEER})"
        lines.append(line.rstrip())
    return lines


def cache_lines(measured: Sequence[Measured], results: Sequence[Measured]) -> list[str]:
    """For each tier of a shape with an int8 cache, its attention's share of the time that a float16 cache took."""
    lines = []
    for one in measured:
        same = (one.tier, replace(one.shape, cache="float16"))
        other = next((other for other in results if (other.tier, other.shape) == same), None)
        if one.shape.cache == "int8" and other and one.attention_median and other.attention_median:
            ratio = one.attention_median / other.attention_median
            lines.append(
                f"{_line((str(one.shape), one.tier))}  attention takes {ratio:.2f} of the float16 cache's time"
            )
    return lines


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=False)).rstrip()


def _as_json(adapter: dict[str, Any], rates: Rates, results: Sequence[Measured]) -> dict[str, Any]:
    return {
        "pageloom": __version__,
        "adapter": adapter,
        "read_bytes_per_second": rates.read,
        "operations_per_second": rates.compute,
        "peer": {"name": PEER, "gpu": PEER_GPU},
        "results": [one.to_fields(rates) for one in results],
    }

"""`pageloom bench --backend cpu`: the CPU's kernels against ONNX Runtime, pair by pair, beside the machine's limits."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pageloom import __version__
from pageloom.backends.cpu.facts import cpu_facts
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.cpu.operators.bound import RecordedCall
from pageloom.backends.cpu.options import usable_cores
from pageloom.commands.bench_cpu_calls import group_query_inputs, onnxruntime_call, record_group_query, record_paged
from pageloom.commands.bench_cpu_limits import CpuLimits, measure_limits
from pageloom.commands.bench_cpu_memory import WANTED_BYTES, Peak, can_measure, measure_peaks
from pageloom.commands.bench_cpu_shapes import PARTS, CpuShape, Part, shapes
from pageloom.commands.bench_output import BenchOutput, choose_shapes
from pageloom.commands.bench_pairs import Pairs, join, time_alone, time_pairs
from pageloom.commands.terminal import ProgressLine
from pageloom.errors import InvalidArgument, NotSupported

PAIRS_OF_A_REPEAT = 6
SECONDS_OF_A_SHAPE = 3.0
"""No more pairs are begun after them."""
BLOCKS = 4
"""Times that a peer with threads of its own is set up anew: only one of the two is ever there while the other runs."""
WANTED_CALL_SECONDS = 6e-6
_WIDTHS = (40, 8, 10, 10, 8, 13, 8, 10, 8)
_HEADINGS = ("shape", "threads", "ours µs", "peer µs", "ratio", "spread", "wanted", "limit µs", "x limit")


@dataclass(frozen=True, slots=True)
class CpuMeasured:
    """One shape with a number of threads."""

    shape: CpuShape
    threads: int
    tier: str
    pairs: Pairs
    limit: float

    @property
    def met(self) -> bool | None:
        """Whether the wanted ratio was reached, where there is one."""
        if self.shape.part == "call":
            return min(self.pairs.ours) < WANTED_CALL_SECONDS
        return None if self.shape.wanted is None else self.pairs.ratio >= self.shape.wanted


def run_on_cpu(options: argparse.Namespace, output: BenchOutput) -> dict[str, Any]:
    """Measure and print what the options name; returns all of it as JSON.

    Raises `NotSupported` where the kernels or the peer are not installed, `InvalidArgument` for an unknown part and
    where no shape is left.
    """
    parts = _parts(options.part)
    facts = cpu_facts()
    if facts.why_no_kernels:
        raise NotSupported(facts.why_no_kernels)
    threads = options.threads or sorted({1, min(2, usable_cores())})
    chosen = choose_shapes(shapes(parts, quick=options.quick), options.shape) if parts else []
    output.say(f"{facts.describe()}; level {CpuOperators(level=options.level).level}")
    output.say(f"peer: {_peer()}; ratios are the peer's time over ours")
    progress = ProgressLine(sys.stderr)
    results: list[CpuMeasured] = []
    limits = {}
    for count in threads:
        progress.show("Measuring the limits", 0, 1, f"{count} threads")
        limits[count] = measure_limits(count, [shape.num_bytes for shape in chosen])
        progress.clear()
        output.say(f"{count} threads: sgemm {limits[count].operations / 1e9:.0f} GFLOP/s")
    output.say("\n" + _line(_HEADINGS))
    todo = [(count, shape) for count in threads for shape in chosen if not (shape.part == "split" and count == 1)]
    for number, (count, shape) in enumerate(todo):
        progress.show("Measuring", number, len(todo), str(shape))
        results.append(_measure(shape, count, limits[count], options))
        progress.clear()
        output.say(_measured_line(results[-1]))
        output.tell([_fields(results[-1])], len(todo))
    everything = options.part is None and options.shape == "*"
    peaks = list(_measured_peaks(options, output)) if everything or "memory" in (options.part or ()) else []
    return {
        "pageloom": __version__,
        "cpu": facts.to_fields(),
        "peer": _peer(),
        "operations_per_second": {str(count): limit.operations for count, limit in limits.items()},
        "results": [_fields(result) for result in results],
        "peaks": [asdict(peak) for peak in peaks],
    }


def _parts(named: Sequence[str] | None) -> tuple[Part, ...]:
    for name in named or ():
        if name not in (*PARTS, "memory"):
            raise InvalidArgument(f"--part is {name!r}; allowed are {', '.join(PARTS)} and memory", param="part")
    return tuple(part for part in PARTS if named is None or part in named)


def _peer() -> str:
    try:
        from pageloom.commands.bench_onnxruntime import VERSION  # noqa: PLC0415 - optional
    except ImportError as error:
        raise NotSupported(f"the peer is not installed ({error}): pip install onnx onnxruntime==1.32.0") from error
    return f"ONNX Runtime {VERSION}, CPU"


def _measure(shape: CpuShape, threads: int, limits: CpuLimits, options: argparse.Namespace) -> CpuMeasured:
    """The shape with `threads` threads; a split needs two."""
    operators = CpuOperators(threads=threads, level=options.level)
    inputs = group_query_inputs(shape)
    record = record_paged if shape.block_size else record_group_query
    call = record(operators, shape, inputs)
    pairs = PAIRS_OF_A_REPEAT * options.repeats
    if shape.part in ("paged", "split"):
        compared = operators if shape.block_size else CpuOperators(threads=1, level=options.level)
        peer = record_group_query(compared, shape, inputs)
        found = time_pairs(peer, call, pairs=pairs, seconds=SECONDS_OF_A_SHAPE)
    elif threads == 1:
        found = time_pairs(onnxruntime_call(shape, threads), call, pairs=pairs, seconds=SECONDS_OF_A_SHAPE)
    else:
        found = join([_block(shape, threads, call, -(-pairs // BLOCKS)) for _ in range(BLOCKS)])
    limit = limits.limit_seconds(shape.num_bytes, shape.num_operations)
    return CpuMeasured(shape, threads, call.explain().tier, found, limit)


def _block(shape: CpuShape, threads: int, call: RecordedCall, times: int) -> Pairs:
    """The peer for a while, in a session that is gone when ours runs: its threads wait for work at full speed."""
    seconds = SECONDS_OF_A_SHAPE / BLOCKS / 2
    peer = time_alone(onnxruntime_call(shape, threads), times=times, seconds=seconds)
    return Pairs(tuple(peer), tuple(time_alone(call, times=len(peer))))


def _measured_peaks(options: argparse.Namespace, output: BenchOutput) -> Iterator[Peak]:
    if not can_measure():
        output.say("\npeak memory is not measured: this system does not let a process set its peak back")
        return
    wanted = f"at most {WANTED_BYTES / 1e6:.0f} MB is wanted of flash"
    output.say(f"\npeak memory of a prefill over its inputs and outputs; {wanted}")
    for peak in measure_peaks(usable_cores(), with_peer=True, quick=options.quick):
        output.say(f"S={peak.rows} {peak.num_heads}/8 {peak.who}: {peak.num_bytes / 1e6:.1f} MB")
        yield peak


def _measured_line(measured: CpuMeasured) -> str:
    shape, pairs = measured.shape, measured.pairs
    ours, peer = (sorted(times)[len(times) // 2] for times in (pairs.ours, pairs.peer))
    low, high = pairs.spread
    wanted = "" if shape.wanted is None else f"{shape.wanted:.2f}"
    cells = [str(shape), str(measured.threads), f"{ours * 1e6:.1f}", f"{peer * 1e6:.1f}", f"{pairs.ratio:.2f}"]
    cells += [f"{low:.2f}-{high:.2f}", wanted, f"{measured.limit * 1e6:.1f}", f"{ours / measured.limit:.2f}"]
    verdict = "" if measured.met is None or measured.met else "  short of it"
    return f"{_line(cells)}  {measured.tier}{verdict}"


def _line(cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _fields(measured: CpuMeasured) -> dict[str, Any]:
    fields = json.loads(json.dumps(asdict(measured)))
    return {**fields, "ratio": measured.pairs.ratio, "spread": measured.pairs.spread, "met": measured.met}

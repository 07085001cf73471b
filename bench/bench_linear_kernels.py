"""The products of one SmolLM2-135M step with its weights: every variant in turns, and NumPy's in float32.

    python bench/bench_linear_kernels.py [--adapter NAME] [--tokens 1 16 ...] [--rounds N]

A time is that of one product in a row of dependent ones over weights of their own, as in a decoder: the difference of
a long and a short recording. The limit is the weights' bytes over the bandwidth of a reading kernel. On a CPU adapter
the time is CPU time over two cores, which other work on the machine disturbs less; NumPy reads the weights as float32.

Expected on a CPU adapter: `software` far ahead (barriers cost the others), 16 tokens in at most 0.35 of 16 times the
time of one. Expected on a GPU: `matrix_vector` within a few microseconds of a dispatch without work up to 8
tokens, `tiled` ahead from a few dozen on.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass

import numpy as np

from pageloom.backends.webgpu.device import Buffer, Device, Dispatch, Recording
from pageloom.backends.webgpu.native import open_native_device
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.programs.embed import plan_select_rows
from pageloom.backends.webgpu.programs.linear import Variant, choose_linear, plan_gated_linear, plan_linear
from pageloom.backends.webgpu.step_layout import HEADER
from pageloom.backends.webgpu.weights import DeviceWeight, load_weight
from pageloom.model.gguf import TensorInfo
from pageloom.model.quantization import Q4_1, Q8_0, BlockFormat

VARIANTS: tuple[Variant, ...] = ("software", "matrix_vector", "tiled")
COPIES = 6
READ_GROUPS = 4096
NUMPY_REPEATS = 10
READ = """
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  var seen = vec4<u32>();
  for (var i = id.x; i < arrayLength(&source); i += groups.x * 256) { seen |= source[i]; }
  if (any(seen != vec4<u32>())) { sink[0] = 1; }
}
"""


@dataclass(frozen=True)
class Shape:
    """One product of the model; `gated` has two tensors of `rows` rows."""

    name: str
    rows: int
    columns: int
    block: BlockFormat
    gated: bool = False


SHAPES = (
    Shape("qkv", 960, 576, Q4_1),
    Shape("attention output", 576, 576, Q4_1),
    Shape("gate and up", 1536, 576, Q4_1, gated=True),
    Shape("down", 576, 1536, Q4_1),
    Shape("logits", 49152, 576, Q8_0),
)


class RandomBlocks:
    """A source of random blocks whose f16 fields are small numbers."""

    def __init__(self, block: BlockFormat, blocks: int) -> None:
        rng = np.random.default_rng(0)
        raw = rng.integers(0, 256, (blocks, block.bytes), np.uint8)
        raw[:, 1::2][:, : (2 if block is Q4_1 else 1)] = 0x20
        self._data = raw.tobytes()

    @property
    def size(self) -> int:
        return len(self._data)

    async def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


@dataclass
class Bench:
    device: Device
    programs: ProgramCache
    rounds: int

    @property
    def repeats(self) -> int:
        """Enough for a GPU to take longer than the host takes to notice its end."""
        return 3 if self.device.info.adapter_class == "software" else 100

    async def weight(self, shape: Shape) -> DeviceWeight:
        size = shape.rows * shape.columns // shape.block.elements * shape.block.bytes
        source = RandomBlocks(shape.block, size // shape.block.bytes)
        info = TensorInfo(shape.name, (shape.rows, shape.columns), shape.block, 0, size)
        infos = [info, info] if shape.gated else [info]
        return await load_weight(self.device, self.programs, source, infos, shape.name, interleaved=shape.gated)

    def put(self, values: np.ndarray) -> Buffer:
        buffer = self.device.buffer(values.nbytes)
        self.device.write(buffer, 0, values)
        return buffer

    async def recordings(
        self, shape: Shape, weights: list[DeviceWeight], tokens: int, variant: Variant
    ) -> tuple[Recording, Recording]:
        """Every weight once, and `1 + self.repeats` times."""
        header = dict.fromkeys(HEADER, 0) | {"NUM_TOKENS": tokens, "NUM_LOGITS_ROWS": tokens}
        step = self.put(np.array(list(header.values()), np.int32))
        source = self.put(np.random.default_rng(1).standard_normal((tokens, shape.columns)).astype(np.float32))
        target = self.device.buffer(4 * tokens * shape.rows)
        info, commands = self.device.info, []
        for weight in weights:
            if shape.gated:
                planned = plan_gated_linear(
                    info, weight, source, target, step, max_tokens=tokens, activation="silu", variant=variant
                )
            else:
                planned = plan_linear(info, weight, source, target, step, max_tokens=tokens, variant=variant)
            for one in planned:
                commands.append(Dispatch(await self.programs.pipeline(one.key), one.buffers, one.grid))
        return self.device.record(commands), self.device.record((1 + self.repeats) * commands)

    async def nothing(self) -> float:
        """Seconds that a dispatch takes which finds nothing to do: the host's and the device's floor."""
        buffers = [self.device.buffer(4 * len(HEADER)) for _ in range(3)]
        (planned,) = plan_select_rows(*buffers, width=4, max_rows=1)
        commands = 10 * [Dispatch(await self.programs.pipeline(planned.key), planned.buffers, planned.grid)]
        pair = self.device.record(commands), self.device.record((1 + self.repeats) * commands)
        return statistics.median((await self.per_product({"nothing": pair}, len(commands)))["nothing"])

    async def seconds(self, recording: Recording) -> float:
        software = self.device.info.adapter_class == "software"
        clock, cores = (time.process_time, 2) if software else (time.perf_counter, 1)
        await self.device.idle()
        start = clock()
        self.device.submit(recording)
        await self.device.idle()
        return (clock() - start) / cores

    async def per_product(self, pairs: dict[str, tuple[Recording, Recording]], copies: int) -> dict[str, list[float]]:
        """Seconds a product of each pair, sorted, measured in turns."""
        times: dict[str, list[float]] = {name: [] for name in pairs}
        for _ in range(self.rounds + 1):
            for name, (short, long) in pairs.items():
                times[name].append((await self.seconds(long) - await self.seconds(short)) / (self.repeats * copies))
        return {name: sorted(values[1:]) for name, values in times.items()}

    async def bandwidth(self) -> float:
        """Bytes a second of a kernel that only reads, from a buffer larger than caches."""
        size = 2**25 if self.device.info.adapter_class == "software" else 2**28
        buffers = (self.device.buffer(size), self.device.buffer(4))
        read = self.device.record([Dispatch(await self.device.pipeline(READ), buffers, (READ_GROUPS, 1, 1))] * 4)
        best = min([await self.seconds(read) for _ in range(4)])
        for buffer in buffers:
            buffer.destroy()
        return 4 * size / best


def numpy_seconds(shape: Shape, tokens: int, rounds: int) -> float:
    """The median CPU time over two cores of NumPy's product with the same matrix as float32."""
    rng = np.random.default_rng(2)
    weight = rng.standard_normal((shape.rows * (1 + shape.gated), shape.columns), np.float32)
    x = rng.standard_normal((tokens, shape.columns), np.float32)
    times = []
    for _ in range(rounds + 1):
        start = time.process_time()
        for _ in range(NUMPY_REPEATS):
            x @ weight.T
        times.append((time.process_time() - start) / (2 * NUMPY_REPEATS))
    return statistics.median(times[1:])


async def main(adapter: str | None, token_counts: list[int], rounds: int) -> None:
    device = await open_native_device(adapter=adapter)
    software = device.info.adapter_class == "software"
    bench = Bench(device, ProgramCache(device), rounds)
    bandwidth = await bench.bandwidth()
    nothing = await bench.nothing()
    print(f"{device.info.description}: kernels read {bandwidth / 1e9:.1f} GB/s, no work takes {nothing * 1e6:.1f} us")
    one_token: dict[str, float] = {}
    for shape in SHAPES:
        copies = 1 if software else COPIES
        weights = [await bench.weight(shape) for _ in range(copies)]
        for tokens in token_counts:
            variants = ["software"] if software and tokens > 1 else VARIANTS
            pairs = {variant: await bench.recordings(shape, weights, tokens, variant) for variant in variants}
            times = await bench.per_product(pairs, copies)
            limit = weights[0].layout.bytes / bandwidth
            chosen = choose_linear(device.info, tokens).variant
            one_token.setdefault(shape.name, statistics.median(times[chosen]))
            print(f"{shape.name}, {tokens} tokens: limit {limit * 1e6:.1f} us", end="")
            if software:
                ratio = statistics.median(times[chosen]) / numpy_seconds(shape, tokens, rounds)
                print(f", {ratio:.1f} times NumPy in float32", end="")
            if tokens > 1:
                alone = tokens * one_token[shape.name]
                print(f", {statistics.median(times[chosen]) / alone:.2f} of {tokens} products with one token", end="")
            print()
            for variant, values in times.items():
                mark = "*" if variant == chosen else " "
                print(
                    f"  {mark}{variant:14} {statistics.median(values) * 1e6:9.1f} us  "
                    f"({values[0] * 1e6:.1f} to {values[-1] * 1e6:.1f})"
                )
        for weight in weights:
            weight.destroy()
    device.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapter", help="part of the adapter's name")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.adapter, arguments.tokens, arguments.rounds))

"""Attention of one layer through the paged cache: both variants in turns, and the time that moving K and V must take.

    python bench/bench_attention_kernels.py [--adapter NAME] [--repeats N]

A time is that of one layer by the device's own clock: `LAYERS` layers with caches of their own are recorded one after
another, as in a decoder. The limit is the bytes of K and V (f16) that the queries must see, each once, over the
bandwidth of a kernel that only reads. Expected on a GPU: the gpu variant comes within twice the limit once K and V take
much longer to read than two dispatches (about 2 us each) take to start; on a CPU adapter the software variant is
several times faster than the gpu variant.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from dataclasses import dataclass

import numpy as np

from pageloom.backends.webgpu.device import Buffer, Device, Dispatch
from pageloom.backends.webgpu.native import open_native_device
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.programs.attention import plan_attention
from pageloom.backends.webgpu.programs.attention_check import decoder_form
from pageloom.backends.webgpu.programs.attention_choice import VARIANTS, AttentionBucket, Variant
from pageloom.backends.webgpu.programs.attention_decode import partials_bytes
from pageloom.backends.webgpu.programs.attention_form import AttentionBuffers
from pageloom.backends.webgpu.programs.attention_tiles import query_tile_tokens
from pageloom.backends.webgpu.step_layout import StepLayout
from pageloom.engine.batch import RunnerLimits, StepBatch
from pageloom.model.layer_ops import PagedAttention

BLOCK_SIZE = 16
LAYERS = 4
READ_BYTES = 2**27
READ = """
@group(0) @binding(0) var<storage, read> data: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> sums: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  var sum = vec4<f32>();
  for (var i = id.x; i < arrayLength(&data); i += groups.x * 256u) { sum += data[i]; }
  sums[id.x] = sum;
}
"""


@dataclass(frozen=True)
class Workload:
    name: str
    heads: tuple[int, int, int]
    """Query heads, KV heads, head size."""
    batch_size: int
    past: int
    new: int

    @property
    def op(self) -> PagedAttention:
        num_heads, kv_num_heads, head_size = self.heads
        return PagedAttention(0, "qkv", "out", num_heads, kv_num_heads, head_size, 1.0, None)

    @property
    def kv_bytes(self) -> int:
        return 4 * self.batch_size * (self.past + self.new) * self.heads[1] * self.heads[2]


SMOLLM2, GEMMA3, LLAMA3_8B = (9, 3, 64), (4, 1, 256), (32, 8, 128)
ON_GPU = [
    Workload("SmolLM2 135M, 1 decode", SMOLLM2, 1, 511, 1),
    Workload("SmolLM2 135M, 16 decodes", SMOLLM2, 16, 511, 1),
    Workload("SmolLM2 135M, 1 decode", SMOLLM2, 1, 8191, 1),
    Workload("Gemma 3 270M, 16 decodes", GEMMA3, 16, 511, 1),
    Workload("Llama 3 8B, 32 decodes", LLAMA3_8B, 32, 2047, 1),
    Workload("SmolLM2 135M, prefill", SMOLLM2, 1, 0, 512),
    Workload("Llama 3 8B, prefill", LLAMA3_8B, 2, 512, 512),
]
ON_CPU = [
    Workload("SmolLM2 135M, 1 decode", SMOLLM2, 1, 255, 1),
    Workload("SmolLM2 135M, 16 decodes", SMOLLM2, 16, 255, 1),
    Workload("SmolLM2 135M, prefill", SMOLLM2, 1, 0, 64),
]


async def seconds_of(device: Device, commands: list[Dispatch], at_least: float = 0.03) -> float:
    """Seconds of one run of `commands` by the device's clock, in a row of them that takes `at_least` as long."""
    copies = 1
    while True:
        seconds = await device.time(device.record(commands * copies))
        if seconds is None:
            raise SystemExit("this adapter has no clock (timestamp-query)")
        if seconds >= at_least:
            return seconds / copies
        copies *= 2


async def read_bandwidth(device: Device) -> float:
    """Bytes a second of a kernel that only reads."""
    groups = 1024
    data, sums = device.buffer(READ_BYTES), device.buffer(16 * 256 * groups)
    commands = [Dispatch(await device.pipeline(READ, "read"), (data, sums), (groups, 1, 1))]
    rate = READ_BYTES / statistics.median([await seconds_of(device, commands) for _ in range(5)])
    data.destroy()
    sums.destroy()
    return rate


def step_words(load: Workload, tile_tokens: int) -> np.ndarray:
    blocks = -(-(load.past + load.new) // BLOCK_SIZE)
    num_tokens = load.batch_size * load.new
    table = np.random.default_rng(0).permutation(load.batch_size * blocks).reshape(load.batch_size, blocks)
    limits = RunnerLimits(num_tokens, load.batch_size, table.size, BLOCK_SIZE, blocks, 1, 0, 2)
    batch = StepBatch(
        input_ids=(0,) * num_tokens,
        feed_rows=(-1,) * num_tokens,
        cumulative_sequence_length=tuple(range(0, num_tokens + 1, load.new)),
        past_seqlens=(load.past,) * load.batch_size,
        block_table=tuple(map(tuple, table.tolist())),
        logits_rows=(),
    )
    return np.array(StepLayout(limits, tile_tokens).pack(batch), np.int32)


def filled(device: Device, data: np.ndarray) -> Buffer:
    buffer = device.buffer(data.nbytes)
    device.write(buffer, 0, data)
    return buffer


async def commands_of(
    device: Device, programs: ProgramCache, load: Workload, buffers: dict[str, list[Buffer]], variant: Variant
) -> list[Dispatch]:
    bucket = AttentionBucket(load.batch_size * load.new, load.batch_size, load.new, load.past + load.new)
    commands = []
    for keys, values in zip(buffers["keys"], buffers["values"], strict=True):
        (query,), (output,), (step,), (partials,) = (buffers[n] for n in ("query", "output", "step", "partials"))
        form = decoder_form(device.info, load.op, BLOCK_SIZE)
        layer = AttentionBuffers(query, keys, values, output, step, partials)
        for one in plan_attention(device.info, form, layer, bucket=bucket, variant=variant):
            commands.append(Dispatch(await programs.pipeline(one.key), one.buffers, one.grid))
    return commands


async def measure(device: Device, load: Workload, repeats: int, bandwidth: float) -> None:
    rng = np.random.default_rng(1)
    num_heads, kv_num_heads, head_size = load.heads
    num_tokens = load.batch_size * load.new
    slots = load.batch_size * -(-(load.past + load.new) // BLOCK_SIZE) * BLOCK_SIZE
    form = decoder_form(device.info, load.op, BLOCK_SIZE)
    cache = rng.standard_normal((slots, kv_num_heads, head_size), np.float32).astype(np.float16)
    query = rng.standard_normal((num_tokens, num_heads, head_size), np.float32) * head_size**-0.5
    buffers = {
        "query": [filled(device, query)],
        "output": [device.buffer(query.nbytes)],
        "step": [filled(device, step_words(load, query_tile_tokens(form)))],
        "partials": [device.buffer(partials_bytes(form, device.info, load.batch_size, load.past + load.new))],
        "keys": [filled(device, cache) for _ in range(LAYERS)],
        "values": [filled(device, cache) for _ in range(LAYERS)],
    }
    programs = ProgramCache(device)
    runs = {variant: await commands_of(device, programs, load, buffers, variant) for variant in VARIANTS}
    times: dict[Variant, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(repeats):
        for variant, commands in runs.items():
            times[variant].append(await seconds_of(device, commands) / LAYERS * 1e6)
    median = {variant: statistics.median(values) for variant, values in times.items()}
    shown = ", ".join(
        f"{variant} {median[variant]:.1f} us ({min(values):.1f} to {max(values):.1f})"
        for variant, values in times.items()
    )
    print(
        f"{load.name} at {load.past + load.new} keys: {shown}; ratio {median['software'] / median['gpu']:.2f}; "
        f"limit {load.kv_bytes / bandwidth * 1e6:.1f} us",
        flush=True,
    )
    for buffer in (buffer for group in buffers.values() for buffer in group):
        buffer.destroy()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--adapter", help="part of an adapter's name, such as SwiftShader or llvmpipe")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    device = await open_native_device(adapter=arguments.adapter)
    bandwidth = await read_bandwidth(device)
    print(f"{device.info.description}: reads at {bandwidth / 1e9:.1f} GB/s", flush=True)
    for load in ON_CPU if device.info.adapter_class == "software" else ON_GPU:
        await measure(device, load, arguments.repeats, bandwidth)
    device.close()


if __name__ == "__main__":
    asyncio.run(main())

"""A language model on CUDA: greedy tokens per second of one sequence and of 64 together, through the engine.

Beside them stands what limits a step: the bytes of the weights and of K and V that it reads over the rate of a large
copy, the time of its replayed graphs alone, and the engine's own time around them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pageloom
from pageloom.backends.cuda.availability import why_unavailable
from pageloom.engine.batch import StepBatch
from pageloom.engine.config import EngineConfig
from pageloom.engine.events import TokenEvent
from pageloom.engine.sampling_params import SamplingParams
from pageloom.language_model import LanguageModel

MODEL = Path(__file__).parents[1] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
WANTED = {1: 700, 64: 20_000}
"""Tokens per second on an NVIDIA H200."""
PROMPT = 32


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one run: all tokens over all its time, prompts included; and of the decode steps alone."""

    whole: float
    decode: float


async def measure(model: LanguageModel, prompts: list[list[int]], tokens: int) -> Rate:
    first: list[float] = []

    async def follow(ids: list[int]) -> None:
        seen = 0
        async for event in model.engine.submit(ids, SamplingParams(max_tokens=tokens, ignore_eos=True)):
            if isinstance(event, TokenEvent) and (seen := seen + 1) == 1:
                first.append(time.perf_counter())

    started = time.perf_counter()
    await asyncio.gather(*map(follow, prompts))
    ended = time.perf_counter()
    made = len(prompts) * tokens
    return Rate(made / (ended - started), (made - len(prompts)) / (ended - max(first)))


def step_seconds(runner: Any, sequences: int, past: int, repeats: int = 50) -> tuple[float, float]:
    """(the GPU's time, the host's time to queue it) of one decode step with `past` tokens cached."""
    import torch  # noqa: PLC0415 - optional

    blocks = -(-(past + 1) // runner.limits.block_size)
    step = StepBatch(
        input_ids=(0,) * sequences,
        feed_rows=tuple(range(sequences)),
        cumulative_sequence_length=tuple(range(sequences + 1)),
        past_seqlens=(past,) * sequences,
        block_table=tuple(tuple(range(row * blocks, (row + 1) * blocks)) for row in range(sequences)),
        logits_rows=tuple(range(sequences)),
    )
    runner.submit(step)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    queued = time.perf_counter()
    begin.record()
    for _ in range(repeats):
        runner.submit(step)
    queued = time.perf_counter() - queued
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / repeats, queued / repeats


async def run(arguments: argparse.Namespace) -> None:
    from pageloom.commands.bench_cuda_calls import rates, warm_up  # noqa: PLC0415 - needs PyTorch

    loading = time.perf_counter()
    model = await pageloom.load(
        arguments.model, backend="cuda", engine=EngineConfig(share_prefixes=False, timeline_length=1)
    )
    runner: Any = model.runner
    print(f"{arguments.model.name} on {model.device_name}, loaded in {time.perf_counter() - loading:.1f} s")
    warm_up()
    bytes_a_second, _ = rates()
    decoder, weights = model.description.decoder, runner.plan.weights.num_bytes
    token_bytes = 4 * decoder.num_layers * decoder.kv_num_heads * decoder.head_size
    rng = np.random.default_rng(1)
    for sequences in arguments.sequences:
        past = PROMPT + arguments.tokens // 2
        limit = (weights + sequences * past * token_bytes) / bytes_a_second
        gpu, host = step_seconds(runner, sequences, past)
        found = []
        for _ in range(arguments.repeats + 1):
            prompts = rng.integers(100, decoder.vocab_size - 100, (sequences, PROMPT)).tolist()
            found.append(await measure(model, prompts, arguments.tokens))
        whole = [rate.whole for rate in found[1:]]
        decode = statistics.median(rate.decode for rate in found[1:])
        wanted = f", wanted {WANTED[sequences]}" if sequences in WANTED else ""
        print(
            f"{sequences} sequences: {statistics.median(whole):.0f} tokens/s ({min(whole):.0f} to {max(whole):.0f})"
            f"{wanted}; decoding {decode:.0f}, {1e3 * sequences / decode:.2f} ms a step: GPU {1e3 * gpu:.2f} ms, "
            f"queueing {1e3 * host:.2f} ms, limit of the bytes {1e3 * limit:.2f} ms",
            flush=True,
        )
    await model.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if reason := why_unavailable():
        print(f"not run: {reason}")
    else:
        asyncio.run(run(arguments))


if __name__ == "__main__":
    main()

"""A language model on the CPU against llama.cpp (`llama-cpp-python`) in the same process, in turns.

Ours runs through the engine as an application's requests do, and multiplies float32 activations with the weights as
they are; llama.cpp's steps are run directly, and it rounds activations to 8 bits. The limits: a decode step reads every
weight once, and a prompt multiplies every weight of the layers with each of its tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import statistics
import time
from pathlib import Path

import numpy as np
import pageloom_cpu

import pageloom
from pageloom.commands.bench_cpu_limits import measure_limits
from pageloom.engine.config import EngineConfig
from pageloom.engine.events import TokenEvent
from pageloom.engine.sampling_params import SamplingParams
from pageloom.language_model import LanguageModel
from pageloom.model.layer_ops import GatedLinear, Linear, Logits

MODEL = Path(__file__).parents[1] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "llama.cpp is not installed here: pip install llama-cpp-python==0.3.36 compiles it. Only our rates follow."
LONG, SHORT, SEQUENCES = 512, 32, 16


def fresh_prompts(rng: np.random.Generator, count: int, length: int) -> list[list[int]]:
    """Tokens that no run has had, so that nothing is found in the prefix cache."""
    return rng.integers(100, 40_000, (count, length)).tolist()


async def prompt_seconds(model: LanguageModel, ids: list[int]) -> float:
    started = time.perf_counter()
    await model.engine.submit(ids, SamplingParams(max_tokens=1)).result()
    return time.perf_counter() - started


async def decode_seconds(model: LanguageModel, prompts: list[list[int]], tokens: int) -> float:
    """From when every sequence has its first token until each has `tokens` more."""
    first: list[float] = []

    async def follow(ids: list[int]) -> None:
        seen = 0
        async for event in model.engine.submit(ids, SamplingParams(max_tokens=tokens + 1, ignore_eos=True)):
            if isinstance(event, TokenEvent) and (seen := seen + 1) == 1:
                first.append(time.perf_counter())

    await asyncio.gather(*map(follow, prompts))
    return time.perf_counter() - max(first)


def weights_of(model: LanguageModel) -> tuple[int, int]:
    """Bytes that a step reads, and weights of the layers alone."""
    tensors, ops = model.description.gguf.tensors, model.description.decoder.ops
    layers = [name for op in ops if isinstance(op, Linear) for name in op.weights]
    layers += [name for op in ops if isinstance(op, GatedLinear) for name in (op.gate, op.up)]
    heads = [op.weight for op in ops if isinstance(op, Logits)]
    return sum(tensors[name].size for name in layers + heads), sum(int(np.prod(tensors[name].shape)) for name in layers)


def report(name: str, tokens: int, pairs: list[tuple[float, float | None]], limit: float) -> None:
    ours = [tokens / mine for mine, _ in pairs]
    line = f"{name}: {statistics.median(ours):.0f} tokens/s, the limit {limit:.0f}"
    ratios = [theirs / mine for mine, theirs in pairs if theirs is not None]
    if ratios:
        peer = statistics.median(tokens / theirs for _, theirs in pairs if theirs is not None)
        line += (
            f"; llama.cpp {peer:.0f}; ours / llama.cpp {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )
    print(line, flush=True)


async def run(arguments: argparse.Namespace) -> None:
    peer = None
    if importlib.util.find_spec("llama_cpp"):
        from llama_cpp_peer import LlamaCppPeer  # noqa: PLC0415 - optional

        peer = LlamaCppPeer(arguments.model, arguments.threads, SEQUENCES, 4096)
    else:
        print(INSTALL)
    model = await pageloom.load(
        arguments.model, backend="cpu", engine=EngineConfig(share_prefixes=False, timeline_length=1)
    )
    pageloom_cpu.set_threads(arguments.threads)
    print(f"{arguments.model.name} on {model.device_name}")
    rng = np.random.default_rng(1)
    found: dict[str, list[tuple[float, float | None]]] = {"prompt": [], "one": [], "many": []}
    for repeat in range(arguments.repeats + 1):
        (ids,), alone, crowd = (fresh_prompts(rng, *shape) for shape in ((1, LONG), (1, SHORT), (SEQUENCES, SHORT)))
        tokens = arguments.tokens
        pairs = {
            "prompt": (await prompt_seconds(model, ids), peer and peer.prompt_seconds(ids)),
            "one": (await decode_seconds(model, alone, tokens), peer and peer.decode_seconds(alone, tokens)),
            "many": (await decode_seconds(model, crowd, tokens), peer and peer.decode_seconds(crowd, tokens)),
        }
        if repeat == 0:  # warms up
            continue
        for name, pair in pairs.items():
            found[name].append(pair)
        seconds = (
            f"{name} {mine:.2f} s" + (f" ({theirs:.2f})" if theirs else "") for name, (mine, theirs) in pairs.items()
        )
        print("; ".join(seconds), flush=True)
    step_bytes, layer_weights = weights_of(model)
    limits = measure_limits(arguments.threads, [step_bytes])
    one = 1 / limits.limit_seconds(step_bytes, 2 * layer_weights)
    many = SEQUENCES / limits.limit_seconds(step_bytes, 2 * SEQUENCES * layer_weights)
    report(f"prompt of {LONG}", LONG, found["prompt"], limits.operations / 2 / layer_weights)
    report("decode, 1 sequence", arguments.tokens, found["one"], one)
    report(f"decode, {SEQUENCES} sequences", SEQUENCES * arguments.tokens, found["many"], many)
    await model.close()
    if peer:
        peer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=5)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

"""Sixteen prompts together against the same sixteen one after another, natively.

The limit: a step reads every weight once, however many prompts share it, so an adapter whose time goes into reading or
unpacking weights could answer sixteen in the time of one; one that is bound by arithmetic gains nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path

import pageloom
from pageloom.backends.webgpu.load import RunnerSettings
from pageloom.engine.core import EngineConfig
from pageloom.language_model import LanguageModel

MODEL = Path(__file__).parents[1] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


async def seconds(model: LanguageModel, rows: list[dict[str, object]], *, together: bool) -> float:
    started = time.perf_counter()
    for group in [rows] if together else [[row] for row in rows]:
        await model.run_batch(group)
    return time.perf_counter() - started


async def run(arguments: argparse.Namespace) -> None:
    rows: list[dict[str, object]] = [
        {"prompt": f"Tell me about the number {index}.", "max_tokens": arguments.tokens, "ignore_eos": True}
        for index in range(arguments.prompts)
    ]
    # Without sharing, so that what is measured is the batch and not the prefix cache.
    model = await pageloom.load(
        arguments.model,
        settings=RunnerSettings(prefer=arguments.adapter),
        engine=EngineConfig(share_prefixes=False),
    )
    print(f"adapter: {model.explain()['adapter']['description']}")
    await seconds(model, rows, together=True)
    pairs = []
    for _ in range(arguments.repeats):
        pairs.append((await seconds(model, rows, together=True), await seconds(model, rows, together=False)))
        rates = [len(rows) * arguments.tokens / elapsed for elapsed in pairs[-1]]
        print(f"together {rates[0]:.1f} tokens/s, one after another {rates[1]:.1f} tokens/s", flush=True)
    ratios = [together / alone for together, alone in pairs]
    print(
        f"{arguments.prompts} prompts, {arguments.tokens} tokens each: together takes "
        f"{statistics.median(ratios):.3f} of the time ({min(ratios):.3f} to {max(ratios):.3f})"
    )
    await model.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--adapter", choices=["gpu", "software"])
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

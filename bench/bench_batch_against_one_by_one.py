"""Sixteen prompts together against the same sixteen one after another, natively.

The limit: a step reads every weight once, however many prompts share it, so an adapter whose time goes into reading or
unpacking weights could answer sixteen in the time of one; one that is bound by arithmetic gains nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from pathlib import Path

import pageloom
from pageloom.backends.webgpu.load import RunnerSettings
from pageloom.engine.config import EngineConfig
from pageloom.language_model import LanguageModel

MODEL = Path(__file__).parents[1] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


async def seconds(model: LanguageModel, rows: list[dict[str, object]], *, together: bool) -> float:
    started = time.perf_counter()
    for group in [rows] if together else [[row] for row in rows]:
        await model.run_batch(group)
    return time.perf_counter() - started


async def run(arguments: argparse.Namespace) -> None:
    numbers = itertools.count(100)

    def fresh_rows() -> list[dict[str, object]]:
        """Prompts that no run has had: of what was computed before they share the chat template's pages only."""
        return [
            {"prompt": f"Tell me about the number {next(numbers)}.", "max_tokens": arguments.tokens, "ignore_eos": True}
            for _ in range(arguments.prompts)
        ]

    model = await pageloom.load(
        arguments.model,
        settings=RunnerSettings(prefer=arguments.adapter),
        engine=EngineConfig(share_prefixes=not arguments.no_sharing),
    )
    print(f"adapter: {model.explain()['adapter']['description']}")
    await seconds(model, fresh_rows()[:2], together=True)
    pairs = []
    for _ in range(arguments.repeats):
        together = await seconds(model, fresh_rows(), together=True)
        pairs.append((together, await seconds(model, fresh_rows(), together=False)))
        rates = [arguments.prompts * arguments.tokens / elapsed for elapsed in pairs[-1]]
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
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--no-sharing", action="store_true", help="compute the chat template anew for every prompt")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

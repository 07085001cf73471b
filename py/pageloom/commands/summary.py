"""The few lines that end a batch: how much was made, how fast, and how the pool of pages was used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TextIO


def print_summary(
    stream: TextIO, rows: Iterable[Mapping[str, Any]], seconds: float, stats: Mapping[str, Any], adapter: str
) -> None:
    """`rows` are those that were run, `seconds` the time they took together, `stats` the fields of `EngineStats`."""
    rows = list(rows)
    served = [row["usage"] for row in rows if "error" not in row]
    output, prompt, cached = (
        sum(usage[name] for usage in served) for name in ("completion_tokens", "prompt_tokens", "cached_tokens")
    )
    rate = output / seconds if seconds else 0.0
    lines = [
        f"{len(served)} of {len(rows)} rows in {seconds:.1f} s: {output} tokens, {rate:.1f} tokens/s",
        f"{stats['steps']} steps, {prompt} prompt tokens of which {cached} came from the prefix cache",
        f"{stats['peak_blocks']} of {stats['num_blocks']} pages at the peak, {stats['peak_shared_blocks']} shared; "
        f"{stats['preemptions']} preemptions",
        f"adapter: {adapter}",
    ]
    print("\n".join(lines), file=stream)


def adapter_name(description: str, adapter_class: str, *, has_f16: bool, home: str) -> str:
    return f"{description} ({adapter_class}, {'native' if has_f16 else 'packed'} f16), {home}"

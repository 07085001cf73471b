"""PagedAttention cases that faults of other engines are known by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pageloom.attention.cases.case import Case, Inputs
from pageloom.attention.cases.paged_case import Adjust, paged_case


def cases() -> Iterator[Case]:
    """All regressions that are not the guard of a feature's or a sweep's own case."""
    yield from _zero_tokens()
    yield from _numerics()


def _zero_tokens() -> Iterator[Case]:
    guard = "the longest query was guessed as tokens - batch + 1, which sequences without new tokens make too small"
    for rotary in (False, True):
        suffix = "_rotary" if rotary else ""
        for name, new, past in (
            ("first_of_four", (10, 0, 0, 0), (0, 5, 0, 31)),
            ("inner_two", (0, 7, 0, 3), (16, 2, 0, 60)),
            ("first_of_sixteen", (10, *(0,) * 15), (7, *range(15))),
            ("tile_edge", (65, 0), (63, 128)),
            ("last", (0, 0, 65), (1, 0, 0)),
        ):
            yield paged_case(
                f"zero_tokens/{name}{suffix}",
                new=new,
                past=past,
                do_rotary=rotary,
                packed=rotary,
                quick=not rotary,
                guards=guard,
            )
    yield paged_case("zero_tokens/none_at_all", new=(0, 0), past=(5, 0), quick=True)
    yield paged_case("zero_tokens/none_at_all_packed", new=(0,), past=(16,), packed=True, extra_columns=0, quick=True)
    yield paged_case(
        "zero_tokens/full_sequence",
        new=(0, 1),
        past=(32, 31),
        extra_columns=0,
        quick=True,
        guards="a full sequence without new tokens was refused",
    )


def _numerics() -> Iterator[Case]:
    for name, new in (("decode", (1,)), ("prefill", (20,))):
        yield paged_case(
            f"numerics/very_negative_logits_{name}",
            head_size=32,
            new=new,
            past=(0,),
            scale=1.0,
            adjust=_constant(60.0, -30.0),
            quick=True,
            guards="valid logits below -50,000 were taken for masked ones",
        )
        yield paged_case(
            f"numerics/products_past_half_precision_{name}",
            new=new,
            past=(0,),
            scale=1e-4,
            adjust=_constant(60.0, 60.0),
            quick=True,
            guards="q.k overflowed in half precision before it was scaled",
        )
        yield paged_case(
            f"numerics/sharp_softmax_{name}", new=new, past=(0,), magnitude=30.0, quick=True, guards="exp overflowed"
        )
    yield paged_case(
        "numerics/subnormal_values", new=(1, 20), past=(40, 0), adjust=_tiny_values, quick=True, guards="V underflowed"
    )


def _constant(query: float, key: float) -> Adjust:
    """Q all the same, K nearly so, in steps that half precision holds."""

    def adjust(inputs: Inputs) -> None:
        steps = (np.arange(inputs["key"].size) % 7).reshape(inputs["key"].shape) / 64
        inputs["query"][:] = query
        inputs["key"][:] = key * (1 + steps)

    return adjust


def _tiny_values(inputs: Inputs) -> None:
    inputs["value"] *= np.float16(2.0**-12)

"""PagedAttention cases of what happens before attention: rotary embedding and the norm of Q and K."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pageloom.attention.cases.case import Case
from pageloom.attention.cases.paged_case import paged_case

RAGGED: dict[str, Any] = {"new": (33, 1, 0, 16), "past": (95, 64, 7, 0)}
Lengths = tuple[int, ...]
QK_NORM_SHAPES: tuple[tuple[Lengths, Lengths, tuple[int, int], int], ...] = (
    ((1, 1), (15, 63), (4, 4), 64),
    ((1, 1), (16, 65), (4, 2), 80),
    ((65, 33, 0), (0, 7, 0), (4, 1), 128),
    ((7, 2, 0), (31, 1, 0), (4, 2), 64),
    ((65, 33, 1), (17, 0, 3), (4, 4), 64),
    ((5, 1), (0, 9), (1, 1), 512),
)
"""New and past lengths, heads, head size."""


def cases() -> Iterator[Case]:
    """Rotary, norm, and all features together."""
    yield from _rotary()
    yield from _qk_norm()


def _rotary() -> Iterator[Case]:
    for interleaved in (False, True):
        for packed in (False, True):
            name = f"rotary/{'interleaved' if interleaved else 'half'}{'_packed' if packed else ''}"
            options: dict[str, Any] = {"do_rotary": True, "rotary_interleaved": interleaved, "packed": packed}
            yield paged_case(f"{name}/ragged", quick=True, **options, **RAGGED)
            yield paged_case(f"{name}/decode", new=(1, 1), past=(0, 64), head_size=128, quick=packed, **options)
            for new, total in ((1, 32), (4, 32), (16, 64), (1, 64)):
                for heads in ((8, 8), (8, 4)):
                    yield paged_case(
                        f"{name}/{new}_{total}_{heads[1]}",
                        new=(new,) * 2,
                        past=(total - new,) * 2,
                        heads=heads,
                        head_size=128,
                        block_size=256,
                        **options,
                    )
        yield paged_case(
            f"rotary/partial_{'interleaved' if interleaved else 'half'}",
            do_rotary=True,
            rotary_dim=32,
            rotary_offset=16,
            rotary_interleaved=interleaved,
            head_size=80,
            quick=True,
            **RAGGED,
        )


def _qk_norm() -> Iterator[Case]:
    for index, (new, past, heads, head_size) in enumerate(QK_NORM_SHAPES):
        yield paged_case(
            f"qk_norm/{index}", new=new, past=past, heads=heads, head_size=head_size, qk_norm=True, quick=True
        )
    for epsilon in (1e-12, 0.25):
        yield paged_case(
            f"qk_norm/epsilon_{epsilon:g}", new=(5, 1), past=(0, 20), qk_norm=True, qk_norm_epsilon=epsilon, quick=True
        )
    for magnitude in (0.0, 1e-3, 1000.0):
        yield paged_case(
            f"qk_norm/magnitude_{magnitude:g}",
            new=(5, 1),
            past=(0, 0),
            qk_norm=True,
            magnitude=magnitude,
            quick=True,
            guards="squares of half-precision numbers overflowed and the norm came out as 0",
        )
    for interleaved in (False, True):
        yield paged_case(
            f"qk_norm/rotary_packed_{interleaved:d}",
            qk_norm=True,
            do_rotary=True,
            rotary_interleaved=interleaved,
            packed=True,
            head_size=80,
            quick=True,
            **RAGGED,
        )
    yield paged_case(
        "all_together/ragged",
        qk_norm=True,
        do_rotary=True,
        packed=True,
        head_sink=True,
        softcap=50.0,
        recycle=True,
        local_window_size=20,
        slots="given",
        poison="large",
        quick=True,
        **RAGGED,
    )

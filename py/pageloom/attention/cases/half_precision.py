"""Cases of Attention and GroupQueryAttention in half precision: what accelerators have fast kernels for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pageloom.attention.cases.case import Case
from pageloom.attention.cases.group_query_cases import QUANTIZED, group_query_case
from pageloom.attention.cases.onnx_cases import attention_case
from pageloom.attention.tensors import DType

HALVES: tuple[DType, ...] = ("float16", "bfloat16")
DECODE_WIDTHS = ((64, 64), (128, 128), (256, 256), (72, 72), (248, 248), (64, 32), (128, 64))
"""head_size and v_head_size: the usual ones, other multiples of 8, and two that differ."""


def cases() -> Iterator[Case]:
    """All cases of both operators."""
    for dtype in HALVES:
        yield from _external_cache(dtype)
        yield from _internal_cache(dtype)
        yield from _group_query(dtype)


def _external_cache(dtype: DType) -> Iterator[Case]:
    for flat in (False, True):
        rank = "flat" if flat else "heads_first"
        for padding in (np.nan, 1e4):
            name = f"half/{dtype}/external_{rank}_{padding:g}"
            options: dict[str, Any] = {"dtype": dtype, "flat": flat, "is_causal": True, "padding": padding}
            yield attention_case(f"{name}/decode", rows=1, keys=40, nonpad=(1, 33), quick=not flat, **options)
            yield attention_case(
                f"{name}/empty",
                rows=1,
                keys=16,
                nonpad=(0, 5),
                quick=True,
                guards="a batch row without keys became NaN on a kernel that never meets one elsewhere",
                **options,
            )
            yield attention_case(f"{name}/chunk", rows=7, keys=40, nonpad=(40, 33), quick=flat, **options)
            yield attention_case(f"{name}/more_rows_than_keys", rows=3, keys=8, nonpad=(1, 5), quick=True, **options)
        for head_size, v_head_size in DECODE_WIDTHS:
            yield attention_case(
                f"half/{dtype}/external_{rank}/head_{head_size}_{v_head_size}",
                rows=1,
                keys=70,
                nonpad=(70, 9),
                widths=(head_size, v_head_size),
                dtype=dtype,
                flat=flat,
                is_causal=True,
                quick=head_size in (72, 128),
            )
    for heads in ((4, 4), (4, 1), (8, 2), (16, 4), (14, 2)):
        yield attention_case(
            f"half/{dtype}/external_groups/{heads[0]}_{heads[1]}",
            rows=1,
            keys=70,
            nonpad=(70, 9),
            heads=heads,
            dtype=dtype,
            is_causal=True,
        )
    yield attention_case(
        f"half/{dtype}/external_long", rows=1, keys=700, nonpad=(650, 129), heads=(8, 2), dtype=dtype, is_causal=True,
        quick=True,
    )  # fmt: skip


def _internal_cache(dtype: DType) -> Iterator[Case]:
    for causal in (False, True):
        name = f"half/{dtype}/{'causal' if causal else 'full'}"
        options: dict[str, Any] = {"dtype": dtype, "is_causal": causal}
        for head_size, v_head_size in DECODE_WIDTHS[:2] + DECODE_WIDTHS[-2:]:
            widths = (head_size, v_head_size)
            yield attention_case(
                f"{name}/decode_{head_size}_{v_head_size}", rows=1, keys=1, past=65, widths=widths, **options
            )
        yield attention_case(f"{name}/square", rows=70, keys=70, quick=causal, **options)
        yield attention_case(f"{name}/square_flat", rows=70, keys=70, flat=True, **options)
        yield attention_case(f"{name}/chunk", rows=19, keys=19, past=50, quick=causal, **options)
        yield attention_case(f"{name}/cross", rows=3, keys=17, quick=causal, **options)
        yield attention_case(f"{name}/softcap", rows=2, keys=17, softcap=2.0, **options)
        yield attention_case(f"{name}/bool_mask", rows=5, keys=9, mask="bool_row_hidden", quick=causal, **options)
        yield attention_case(f"{name}/float_mask", rows=5, keys=16, mask="float", **options)


def _group_query(dtype: DType) -> Iterator[Case]:
    for name, rows, totals in (("prompt", 40, (40, 40)), ("decode", 1, (41, 9, 1)), ("chunk", 7, (41,))):
        shape: dict[str, Any] = {
            "rows": rows, "totals": totals, "capacity": None if rows == totals[0] else 48, "dtype": dtype,
            "heads": (8, 2), "head_size": 64,
        }  # fmt: skip
        full = f"half/{dtype}/{name}"
        yield group_query_case(f"{full}/plain", quick=True, **shape)
        yield group_query_case(f"{full}/window_sink", local_window_size=9, head_sink=True, quick=True, **shape)
        yield group_query_case(f"{full}/smooth_softcap", smooth_softmax=1, softcap=5.0, magnitude=2.0, **shape)
        yield group_query_case(f"{full}/rotary", do_rotary=True, packed=True, quick=name == "decode", **shape)
        yield group_query_case(
            f"{full}/interleaved_norm", do_rotary=True, rotary_interleaved=True, qk_norm=True, **shape
        )
        for kind, storage in QUANTIZED:
            quantized = shape | storage | {"capacity": 48}
            yield group_query_case(f"{full}/{kind}", quick=name == "decode", **quantized)
    yield group_query_case(
        f"half/{dtype}/padded_prompts", rows=12, totals=(12, 7, 1), dtype=dtype, do_rotary=True, quick=True
    )
    yield group_query_case(
        f"half/{dtype}/chunks", rows=6, totals=(30, 7, 6, 12), chunks=(6, 2, 6, 0), capacity=40, dtype=dtype, quick=True
    )
    yield group_query_case(f"half/{dtype}/shared", rows=1, totals=(20, 9), capacity=24, shared=True, dtype=dtype)
    yield group_query_case(f"half/{dtype}/decode_128", rows=1, totals=(700, 65), capacity=704, heads=(32, 8),
                           head_size=128, dtype=dtype)  # fmt: skip

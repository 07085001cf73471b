"""GroupQueryAttention's part of the matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from pageloom.attention.cases.case import Case, Inputs
from pageloom.attention.cases.group_query_inputs import GroupQueryProblem, expected_outputs, make_inputs
from pageloom.attention.group_query.spec import SIDES, GroupQueryAttentionSpec

_SPEC_FIELDS = {field.name for field in fields(GroupQueryAttentionSpec)}
QUANTIZED: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    (
        f"int{bits}_{kind.lower()}",
        {"k_element": f"int{bits}", "v_element": f"int{bits}", "kv_cache_bit_width": bits, "k_quant_type": kind,
         "v_quant_type": kind},
    )
    for bits in (8, 4)
    for kind in ("PER_TENSOR", "PER_CHANNEL")
)  # fmt: skip
MIXED: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "int8_keys_int4_values",
        {"k_element": "int8", "k_quant_type": "PER_CHANNEL", "k_cache_bit_width": 8, "v_element": "int4",
         "v_quant_type": "PER_TENSOR", "v_cache_bit_width": 4},
    ),
    (
        "int4_keys_int8_values",
        {"k_element": "int4", "k_quant_type": "PER_TENSOR", "v_element": "int8", "v_quant_type": "PER_CHANNEL",
         "kv_cache_bit_width": 4, "v_cache_bit_width": 8},
    ),
    ("float_keys", {"v_element": "int8", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}),
    ("float_values", {"k_element": "int4", "k_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 4}),
)  # fmt: skip
"""K and V stored differently."""


def group_query_case(
    name: str,
    *,
    heads: tuple[int, int] = (4, 2),
    head_size: int = 32,
    quick: bool = False,
    guards: str = "",
    **parameters: Any,
) -> Case:
    """The case `group_query/name`. `parameters` are fields of the spec or of `GroupQueryProblem`."""
    attributes = {key: parameters.pop(key) for key in list(parameters) if key in _SPEC_FIELDS}
    spec = GroupQueryAttentionSpec(num_heads=heads[0], kv_num_heads=heads[1], **attributes)
    if spec.do_rotary:
        parameters.setdefault("rotary_dim", head_size)
    problem = GroupQueryProblem(spec=spec, head_size=head_size, **parameters)

    def expect(inputs: Inputs) -> dict[str, Any]:
        return expected_outputs(problem, inputs)

    return Case(
        name=f"group_query/{name}",
        operator="group_query_attention",
        spec=spec,
        make_inputs=lambda rng: make_inputs(problem, rng),
        expect=expect,
        needs=_needs(problem),
        quick=quick,
        guards=guards,
    )


def _needs(problem: GroupQueryProblem) -> frozenset[str]:
    spec = problem.spec
    present = {
        "softcap": spec.softcap > 0,
        "window": spec.windowed,
        "noncausal": not spec.causal,
        "rotary": spec.do_rotary,
        "qk_norm": problem.qk_norm,
        "sink": problem.head_sink or spec.smooth_softmax == 1,
        "bias": problem.bias is not None,
        "qk_output": spec.qk_output > 0,
        "query_seqlens": bool(problem.chunks),
        "sliding_window_cache": spec.sliding_window_cache,
        "mixed_cache": problem.storage("k") != problem.storage("v"),
        problem.dtype: True,
    }
    elements = {problem.storage(side).element for side in SIDES if problem.storage(side).quantized}
    return frozenset(name for name, used in present.items() if used) | {f"{element}_cache" for element in elements}


def cases() -> Iterator[Case]:
    """All cases."""
    yield from _shapes()
    yield from _features()
    yield from _ragged()
    yield from _quantized()
    yield from _mixed()
    yield from _sliding()


def _shapes() -> Iterator[Case]:
    for dtype in ("float32", "float16", "bfloat16"):
        yield group_query_case(f"{dtype}/prompt", rows=33, totals=(33, 33), dtype=dtype, quick=True)
        yield group_query_case(f"{dtype}/decode", rows=1, totals=(66, 66), capacity=0, dtype=dtype, quick=True)
        yield group_query_case(f"{dtype}/chunk", rows=17, totals=(50,), capacity=0, dtype=dtype, packed=True)
    for total in (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257):
        yield group_query_case(f"prompt/{total}", rows=total, totals=(total,))
        if total > 1:
            yield group_query_case(f"decode/{total}", rows=1, totals=(total, total), capacity=0)
    for heads in ((1, 1), (4, 1), (6, 3), (9, 9), (9, 3), (32, 8)):
        for head_size in (8, 40, 64, 80, 128, 256):
            name = f"heads/{heads[0]}_{heads[1]}_{head_size}"
            quick = (heads, head_size) in (((9, 3), 40), ((32, 8), 128))
            yield group_query_case(f"{name}/prompt", rows=19, totals=(19, 19), heads=heads, head_size=head_size)
            yield group_query_case(
                f"{name}/decode", rows=1, totals=(40,), capacity=64, heads=heads, head_size=head_size, quick=quick
            )
    yield group_query_case("long/prompt", rows=700, totals=(700,), heads=(2, 1))
    yield group_query_case("long/decode", rows=1, totals=(5001,), capacity=0, heads=(8, 2), quick=True)
    yield group_query_case("subsequent_prompt", rows=3, totals=(259,), capacity=0, quick=True)


def _features() -> Iterator[Case]:
    for bias in ((1, 1), (1, 4), (2, 1), (2, 4)):
        yield group_query_case(
            f"bias/{bias[0]}_{bias[1]}", rows=9, totals=(9, 9), bias=bias, softcap=3.0, quick=bias == (2, 1)
        )
    yield group_query_case(
        "bias/head_broadcast_of_three",
        rows=8,
        totals=(8, 8, 8),
        head_size=16,
        bias=(3, 1),
        quick=True,
        guards="the number of heads was used as the batch stride of a bias without heads",
    )
    yield group_query_case("bias/spare_columns", rows=1, totals=(40, 9), capacity=48, bias=(2, 4), bias_spare=3)
    yield group_query_case("bias/chunk", rows=5, totals=(40,), capacity=0, bias=(1, 4))
    for mode in (1, 2):
        yield group_query_case(
            f"qk_output/{mode}", rows=9, totals=(9, 9), qk_output=mode, softcap=2.0, bias=(1, 4), quick=True
        )
        yield group_query_case(f"qk_output/{mode}_decode", rows=1, totals=(40, 40), capacity=0, qk_output=mode)
    for name, rows, totals in (("prompt", 40, (40, 40)), ("decode", 1, (41, 41))):
        shape: dict[str, Any] = {"rows": rows, "totals": totals, "capacity": None if rows == totals[0] else 0}
        yield group_query_case(f"softcap/{name}", softcap=5.0, magnitude=3.0, quick=True, **shape)
        yield group_query_case(f"smooth_softmax/{name}", smooth_softmax=1, quick=True, **shape)
        yield group_query_case(f"sink/{name}", head_sink=True, quick=True, **shape)
        yield group_query_case(f"noncausal/{name}", causal=False, quick=name == "prompt", **shape)
        yield group_query_case(f"qk_norm/{name}", qk_norm=True, do_rotary=True, q_norm_epsilon=0.1, quick=True, **shape)
        for window in (1, 4, 16, 17, 39, 40, 100):
            yield group_query_case(
                f"window/{window}_{name}", local_window_size=window, quick=window in (1, 16), **shape
            )
        for interleaved in (False, True):
            style = "interleaved" if interleaved else "half"
            options: dict[str, Any] = {"do_rotary": True, "rotary_interleaved": interleaved}
            yield group_query_case(f"rotary/{style}_{name}", **options, quick=True, **shape)
            yield group_query_case(f"rotary/{style}_partial_{name}", rotary_dim=16, packed=True, **options, **shape)
            yield group_query_case(f"rotary/{style}_positions_{name}", position_offset=3, **options, **shape)
    yield group_query_case("shared/decode", rows=1, totals=(20, 9), capacity=24, shared=True, quick=True)


def _ragged() -> Iterator[Case]:
    yield group_query_case(
        "ragged/padded_prompts",
        rows=12,
        totals=(12, 7, 1),
        quick=True,
        guards="rows of padding read scores that were never written",
    )
    yield group_query_case(
        "ragged/padded_prompts_rotary",
        rows=12,
        totals=(12, 7, 1),
        do_rotary=True,
        quick=True,
        guards="the past of a padded prompt went below zero and its rotary positions with it",
    )
    for poison in ("nan", "large"):
        yield group_query_case(
            f"ragged/decode_{poison}", rows=1, totals=(33, 7, 1), capacity=48, poison=poison, do_rotary=True, quick=True
        )
    yield group_query_case(
        "ragged/chunks", rows=6, totals=(30, 7, 6, 12), chunks=(6, 2, 6, 0), capacity=40, do_rotary=True, quick=True
    )
    yield group_query_case(
        "ragged/chunks_window", rows=6, totals=(30, 7, 6), chunks=(5, 6, 1), capacity=40, local_window_size=5
    )


def _quantized() -> Iterator[Case]:
    for name, kind in QUANTIZED:
        shapes: tuple[tuple[int, int, tuple[int, int], int], ...] = (
            (1, 4, (2, 1), 8), (2, 4, (4, 2), 16), (1, 8, (2, 1), 64), (1, 4, (4, 1), 16), (1, 16, (4, 2), 32),
            (1, 128, (8, 2), 64),
        )  # fmt: skip
        for batch, rows, heads, head_size in shapes:
            yield group_query_case(
                f"{name}/prompt_{batch}_{rows}_{heads[0]}_{head_size}",
                rows=rows,
                totals=(rows,) * batch,
                capacity=rows,
                heads=heads,
                head_size=head_size,
                quick=batch == 2,
                **kind,
            )
        yield group_query_case(f"{name}/decode", rows=1, totals=(40, 40), capacity=64, quick=True, **kind)
        yield group_query_case(
            f"{name}/ragged_decode",
            rows=1,
            totals=(40, 9, 1),
            capacity=64,
            quick=True,
            guards="every sequence used the first one's length",
            **kind,
        )
        yield group_query_case(f"{name}/chunk", rows=5, totals=(40,), capacity=64, do_rotary=True, **kind)
        yield group_query_case(
            f"{name}/packed_of_three",
            rows=8,
            totals=(8, 8, 8),
            capacity=8,
            head_size=16,
            packed=True,
            guards="rows of packed Q, K and V were strided as if Q stood alone",
            **kind,
        )
        yield group_query_case(f"{name}/bias", rows=8, totals=(8, 8, 8), capacity=8, bias=(3, 1), softcap=3.0, **kind)
        yield group_query_case(f"{name}/sink_window", rows=1, totals=(90, 90), capacity=90, head_sink=True,
                               local_window_size=20, **kind)  # fmt: skip
        yield group_query_case(f"{name}/float16", rows=1, totals=(40, 40), capacity=64, dtype="float16", **kind)


def _mixed() -> Iterator[Case]:
    for name, kind in MIXED:
        yield group_query_case(f"mixed/{name}/prompt", rows=19, totals=(19, 7), capacity=24, quick=True, **kind)
        yield group_query_case(
            f"mixed/{name}/decode", rows=1, totals=(40, 9), capacity=48, do_rotary=True, quick=True, **kind
        )
        yield group_query_case(f"mixed/{name}/packed", rows=5, totals=(40,), capacity=48, packed=True, **kind)


def _sliding() -> Iterator[Case]:
    for total in (1, 3, 4, 5, 6, 7, 8, 9, 12):
        yield group_query_case(
            f"sliding_cache/decode_{total}",
            rows=1,
            totals=(total,),
            capacity=6,
            local_window_size=4,
            sliding_window_cache=True,
            quick=total in (6, 7),
        )
    yield group_query_case(
        "sliding_cache/ragged", rows=1, totals=(12, 7, 3), capacity=6, local_window_size=4, sliding_window_cache=True
    )
    for rows in (2, 9):
        yield group_query_case(
            f"sliding_cache/chunk_{rows}",
            rows=rows,
            totals=(8 + rows,),
            capacity=6,
            local_window_size=4,
            sliding_window_cache=True,
            do_rotary=True,
            quick=rows == 9,
        )

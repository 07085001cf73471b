"""PagedAttention cases of its caches: quantised, mixed and latent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pageloom.attention.cases.case import Case, Inputs
from pageloom.attention.cases.paged_case import paged_case

RAGGED: dict[str, Any] = {"new": (33, 1, 0, 16), "past": (95, 64, 7, 0)}
DECODE: dict[str, Any] = {"new": (1, 1, 1), "past": (0, 31, 130)}


def cases() -> Iterator[Case]:
    """All kinds of cache."""
    yield from _quantized()
    yield from _mixed()
    yield from _latent()


def _side(side: str, element: str, quant_type: str) -> dict[str, Any]:
    if quant_type == "NONE":
        return {}
    named = {"int4": "int4"}.get(element, "")
    return {f"{side}_element": element, f"{side}_quant_type": quant_type, f"{side}_cache_dtype": named}


def _both(element: str, quant_type: str) -> dict[str, Any]:
    return _side("k", element, quant_type) | _side("v", element, quant_type)


def _quantized() -> Iterator[Case]:
    for element in ("int8", "int4", "float8e4m3fn"):
        for quant_type in ("PER_TENSOR", "PER_CHANNEL"):
            kind = _both(element, quant_type)
            name = f"{element}/{quant_type.lower()}"
            is_int8 = element == "int8"
            yield paged_case(f"{name}/decode", quick=True, **kind, **DECODE)
            yield paged_case(f"{name}/ragged", quick=True, **kind, **RAGGED)
            yield paged_case(f"{name}/large_poison", poison="large", **kind, **RAGGED)
            yield paged_case(f"{name}/rotary_packed", packed=True, do_rotary=True, quick=True, **kind, **RAGGED)
            yield paged_case(f"{name}/qk_norm_slots", qk_norm=True, slots="given", quick=is_int8, **kind, **RAGGED)
            yield paged_case(
                f"{name}/window_softcap",
                local_window_size=20,
                softcap=50.0,
                recycle=True,
                quick=not is_int8,
                **kind,
                **RAGGED,
            )
            yield paged_case(f"{name}/sink", head_sink=True, **kind, **DECODE)
            for head_size in (32, 40, 80, 96, 128, 256):
                yield paged_case(
                    f"{name}/head_{head_size}",
                    head_size=head_size,
                    quick=head_size == 40 or (head_size, element) == (128, "int8"),
                    guards="codes were read wrong past some length or for some head size",
                    **kind,
                    new=(1, 19),
                    past=(70, 13),
                )
            for block_size in (32, 64, 256):
                yield paged_case(
                    f"{name}/block_{block_size}", block_size=block_size, **kind, new=(1, 40), past=(300, 0)
                )
            yield paged_case(f"{name}/float32", dtype="float32", quick=is_int8, **kind, new=(1, 19), past=(70, 13))
            yield paged_case(f"{name}/bfloat16", dtype="bfloat16", **kind, new=(1, 19), past=(70, 13))
    yield paged_case(
        "int4/long",
        heads=(8, 2),
        head_size=128,
        quick=True,
        guards="quantised caches went wrong past 1,024 positions under a window",
        local_window_size=512,
        **_both("int4", "PER_CHANNEL"),
        new=(1, 3),
        past=(1500, 1030),
    )

    yield paged_case(
        "int4/huge_scales",
        adjust=_huge_key_scales,
        scale=2e-6,
        quick=True,
        guards="a scale folded into Q in half precision became infinite, and infinity times 0 NaN",
        **_both("int4", "PER_CHANNEL"),
        new=(1, 19),
        past=(70, 13),
    )
    for element in ("int8", "int4"):
        yield paged_case(
            f"{element}/ties_to_even",
            adjust=_halves,
            quick=True,
            guards="codes that lie between two were rounded away from zero",
            **_both(element, "PER_TENSOR"),
            new=(9, 1),
            past=(20, 33),
        )


def _huge_key_scales(inputs: Inputs) -> None:
    """Scales that Q times any of them passes the largest half-precision number."""
    inputs["k_scale"] *= np.float32(2.0**16)


def _halves(inputs: Inputs) -> None:
    """New K and V in halves of a code, which a scale that is a power of two keeps exact."""
    for name in ("key", "value"):
        unit = inputs[f"{name[0]}_scale"] = np.array([0.125], np.float32)
        inputs[name][:] = (np.arange(inputs[name].size) % 41 - 20).reshape(inputs[name].shape) * unit / 2


def _mixed() -> Iterator[Case]:
    sides = (
        ("int8", "PER_TENSOR"), ("int8", "PER_CHANNEL"), ("int4", "PER_TENSOR"), ("float8e4m3fn", "PER_TENSOR"),
        ("", "NONE"),
    )  # fmt: skip
    for key in sides:
        for value in sides:
            if key != value:
                yield paged_case(
                    f"mixed/{key[0] or 'float'}_{key[1].lower()}_{value[0] or 'float'}_{value[1].lower()}",
                    quick=key[1] != value[1] and "int8" in (key[0], value[0]),
                    guards="K was read with V's type or scale",
                    **_side("k", *key),
                    **_side("v", *value),
                    new=(1, 18),
                    past=(40, 5),
                )


def _latent() -> Iterator[Case]:
    small: dict[str, Any] = {
        "kv_cache_layout": "LATENT", "heads": (4, 1), "head_size": 96, "v_head_size": 64, "scale": 0.125,
        "do_rotary": True, "rotary_offset": 64, "rotary_dim": 32,
    }  # fmt: skip
    yield paged_case("latent/ragged", new=(4, 6, 0), past=(9, 5, 3), quick=True, **small)
    yield paged_case("latent/decode", new=(1, 1), past=(31, 70), quick=True, **small)
    yield paged_case("latent/interleaved", new=(4, 6), past=(9, 5), rotary_interleaved=True, quick=True, **small)
    yield paged_case("latent/window", new=(1, 20), past=(60, 5), local_window_size=7, quick=True, **small)
    yield paged_case("latent/full_width_value", new=(1, 9), past=(31, 5), **(small | {"v_head_size": 0}), quick=True)
    for element in ("int8", "int4", "float8e4m3fn"):
        for quant_type in ("PER_TENSOR", "PER_CHANNEL"):
            yield paged_case(
                f"latent/{element}_{quant_type.lower()}",
                new=(4, 1),
                past=(9, 70),
                quick=element == "int8",
                **_side("k", element, quant_type),
                **small,
            )
    large = small | {
        "heads": (16, 1), "head_size": 576, "v_head_size": 512, "scale": 192**-0.5,
        "rotary_offset": 512, "rotary_dim": 64,
    }  # fmt: skip
    yield paged_case("latent/576_512_decode", new=(1, 1), past=(31, 70), quick=True, **large)
    yield paged_case("latent/576_512_prefill", new=(17, 2), past=(0, 33), quick=True, **large)

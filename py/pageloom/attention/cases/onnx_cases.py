"""The part of the matrix of ONNX Attention and TensorScatter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from pageloom.attention.cases.case import Case, Inputs, expected_cache, expected_numbers
from pageloom.attention.cases.compare import Expected
from pageloom.attention.cases.data import normal
from pageloom.attention.numerics.dtypes import SMALLEST_NORMAL, UNIT_ROUNDOFF, dtype_name
from pageloom.attention.numerics.error_budget import AttentionErrors, attention_errors, output_budget
from pageloom.attention.onnx.reference import OnnxAttentionResult, onnx_attention
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.scatter.reference import tensor_scatter
from pageloom.attention.scatter.spec import TensorScatterSpec
from pageloom.attention.tensors import DType

Mask = Literal["", "bool", "float", "bool_row_hidden", "short"]


def attention_case(
    name: str,
    *,
    batch: int = 2,
    heads: tuple[int, int] = (4, 2),
    rows: int = 5,
    keys: int = 5,
    past: int = 0,
    widths: tuple[int, int] = (32, 32),
    dtype: DType = "float32",
    flat: bool = False,
    mask: Mask = "",
    nonpad: tuple[int, ...] = (),
    padding: float = np.nan,
    quick: bool = False,
    guards: str = "",
    **attributes: Any,
) -> Case:
    """The case `onnx/name`; `widths` are head_size and v_head_size, `keys` the rows of K; `padding` fills those past
    nonpad_kv_seqlen."""
    if flat:
        attributes |= {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
    spec = OnnxAttentionSpec(**attributes)

    def build(rng: np.random.Generator) -> Inputs:
        inputs: Inputs = {"Q": normal(rng, (batch, heads[0], rows, widths[0]), dtype)}
        for side, width in zip(("K", "V"), widths, strict=True):
            inputs[side] = normal(rng, (batch, heads[1], keys, width), dtype)
            for row, valid in enumerate(nonpad):
                inputs[side][row, :, valid:] = padding
        if flat:
            inputs = {side: array.swapaxes(1, 2).reshape(batch, array.shape[2], -1) for side, array in inputs.items()}
        if past:
            inputs["past_key"] = normal(rng, (batch, heads[1], past, widths[0]), dtype)
            inputs["past_value"] = normal(rng, (batch, heads[1], past, widths[1]), dtype)
        if nonpad:
            inputs["nonpad_kv_seqlen"] = np.array(nonpad, np.int64)
        return inputs | _mask(mask, rng, (batch, heads[0], rows, past + keys), dtype)

    features = {
        "causal": spec.is_causal, "softcap": spec.softcap > 0, "mask": bool(mask), "nonpad": bool(nonpad), dtype: True,
        "qk_output": spec.qk_matmul_output_mode > 0, "wide_value": widths[0] != widths[1],
    }  # fmt: skip
    return Case(
        name=f"onnx/{name}",
        operator="onnx_attention",
        spec=spec,
        make_inputs=build,
        expect=lambda inputs: _expected(spec, inputs),
        needs=frozenset(feature for feature, used in features.items() if used),
        quick=quick,
        guards=guards,
    )


def _mask(mask: Mask, rng: np.random.Generator, shape: tuple[int, int, int, int], dtype: DType) -> Inputs:
    if not mask:
        return {}
    if mask == "float":
        return {"attn_mask": normal(rng, shape[2:], dtype)}
    columns = shape[3] - 2 if mask == "short" else shape[3]
    visible = rng.random((shape[0], 1, shape[2], columns)) > 0.3
    if mask == "bool_row_hidden":
        visible[0, 0, 1] = False
    return {"attn_mask": visible}


def _expected(spec: OnnxAttentionSpec, inputs: Inputs) -> dict[str, Expected]:
    result = onnx_attention(spec, inputs)
    dtype = dtype_name(inputs["Q"])
    attended = result.attended
    rows = result.visible.shape[:3]
    errors = attention_errors(
        dtype,
        head_size=result.present_key.shape[-1],
        num_keys=result.visible.sum(axis=-1).astype(np.float64),
        logit_mass=attended.logit_mass.reshape(rows),
        logit_size=attended.logit_size.reshape(rows),
        softcap=spec.softcap,
        operand_roundings=2,
    )
    output = attended.output.reshape(*rows, -1)
    budget = output_budget(dtype, errors, attended.mass.reshape(rows), output)
    if inputs["Q"].ndim == 3:
        output, budget = output.swapaxes(1, 2), budget.swapaxes(1, 2)
    outputs = {"Y": expected_numbers(output, budget)}
    if "nonpad_kv_seqlen" in inputs:
        return outputs
    outputs["present_key"] = expected_cache(result.present_key, np.zeros(()))
    outputs["present_value"] = expected_cache(result.present_value, np.zeros(()))
    outputs["qk_matmul_output"] = _expected_products(spec, inputs, result, errors)
    return outputs


def _expected_products(
    spec: OnnxAttentionSpec, inputs: Inputs, result: OnnxAttentionResult, errors: AttentionErrors
) -> Expected:
    """The optional output, which shows keys that the mask hides too unless the mode has applied it."""
    products = result.qk_matmul_output
    dtype = dtype_name(inputs["Q"])
    error = errors.weight
    if spec.qk_matmul_output_mode < 3:
        attended = result.attended
        largest = attended.product_mass.reshape(products.shape[:-1])
        error = attention_errors(
            dtype,
            head_size=result.present_key.shape[-1],
            num_keys=np.ones(()),
            logit_mass=largest,
            logit_size=attended.logit_size.reshape(largest.shape),
            softcap=spec.softcap,
            operand_roundings=2,
        ).logit
    size = np.abs(np.where(np.isfinite(products), products, 0.0)).max(axis=-1)
    return expected_numbers(products, error + 2 * UNIT_ROUNDOFF[dtype] * size + SMALLEST_NORMAL[dtype], optional=True)


def scatter_case(
    name: str,
    *,
    cache: tuple[int, ...],
    update: tuple[int, ...],
    indices: tuple[int, ...] = (),
    dtype: DType = "float32",
    quick: bool = False,
    **attributes: Any,
) -> Case:
    """The case `scatter/name`: shapes of past_cache and update, and write_indices where they are given."""
    spec = TensorScatterSpec(**attributes)

    def build(rng: np.random.Generator) -> Inputs:
        inputs: Inputs = {"past_cache": normal(rng, cache, dtype), "update": normal(rng, update, dtype)}
        inputs["past_cache"].reshape(-1)[::5] = np.nan
        return inputs | ({"write_indices": np.array(indices, np.int64)} if indices else {})

    return Case(
        name=f"scatter/{name}",
        operator="tensor_scatter",
        spec=spec,
        make_inputs=build,
        expect=lambda inputs: {"present_cache": expected_cache(tensor_scatter(spec, inputs), np.zeros(()))},
        needs=frozenset({dtype}),
        quick=quick,
    )


def cases() -> Iterator[Case]:
    """All cases of both operators."""
    yield from _attention_shapes()
    yield from _masks()
    yield from _external_cache()
    yield from _scatter()


def _attention_shapes() -> Iterator[Case]:
    for opset in (23, 24):
        for causal in (False, True):
            name = f"opset_{opset}_{'causal' if causal else 'full'}"
            options: dict[str, Any] = {"opset": opset, "is_causal": causal}
            yield attention_case(f"{name}/square", rows=33, keys=33, quick=opset == 24, **options)
            yield attention_case(f"{name}/past", rows=3, keys=3, past=40, widths=(32, 48), quick=True, **options)
            yield attention_case(f"{name}/decode", rows=1, keys=1, past=65, quick=opset == 24, **options)
            yield attention_case(
                f"{name}/flat", rows=7, keys=7, past=9, flat=True, widths=(40, 16), **options, quick=causal
            )
            yield attention_case(
                f"{name}/cross",
                rows=3,
                keys=17,
                quick=True,
                guards="without a cache the causal rule was aligned to the bottom right",
                **options,
            )
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for rows in (1, 16, 17):
            yield attention_case(
                f"{dtype}/rows_{rows}", rows=rows, keys=rows, past=23, is_causal=True, dtype=dtype, quick=rows == 17
            )
    for heads in ((1, 1), (6, 2), (9, 3), (8, 8)):
        for width in (8, 64, 80, 128):
            yield attention_case(
                f"heads/{heads[0]}_{heads[1]}_{width}", heads=heads, widths=(width, width), past=30, is_causal=True
            )
    for keys in (4, 7, 8, 9, 16, 27, 32, 64, 65):
        yield attention_case(
            f"borrowed_keys/{keys}",
            rows=keys,
            keys=keys,
            mask="float",
            guards="a bias with a number of keys that 8 divides made the kernel fail",
        )
    yield attention_case("softcap", softcap=2.0, scale=1.0, past=9, quick=True)
    yield attention_case("negative_scale", scale=-0.5, past=9)


def _masks() -> Iterator[Case]:
    masks: tuple[Mask, ...] = ("bool", "float", "bool_row_hidden", "short")
    for mask in masks:
        for causal in (False, True):
            name = f"mask/{mask}_{'causal' if causal else 'full'}"
            yield attention_case(
                name,
                mask=mask,
                is_causal=causal,
                past=9,
                quick=mask != "float" or causal,
                guards="a row that sees no key became NaN or the mean of V" if mask == "bool_row_hidden" else "",
            )
        for mode in range(4):
            yield attention_case(
                f"qk_matmul_output/{mode}_{mask}",
                mask=mask,
                qk_matmul_output_mode=mode,
                softcap=2.0,
                past=3,
                quick=mask == "bool_row_hidden",
            )


def _external_cache() -> Iterator[Case]:
    for causal in (False, True):
        for padding in (np.nan, 1e30):
            name = f"external_cache/{'causal' if causal else 'full'}_{padding:g}"
            options: dict[str, Any] = {"is_causal": causal, "padding": padding}
            yield attention_case(f"{name}/decode", rows=1, keys=40, nonpad=(1, 33), quick=True, **options)
            yield attention_case(
                f"{name}/more_rows_than_keys",
                rows=3,
                keys=8,
                nonpad=(1, 5),
                quick=True,
                guards="rows before the first key were given the mean of V",
                **options,
            )
            yield attention_case(f"{name}/empty_and_full", rows=3, keys=8, nonpad=(0, 8), quick=causal, **options)
            yield attention_case(f"{name}/bool_mask", rows=4, keys=24, nonpad=(9, 20), mask="bool", **options)


def _scatter() -> Iterator[Case]:
    cache = (2, 3, 9, 8)
    for dtype in ("float32", "float16", "bfloat16"):
        yield scatter_case(
            f"linear/{dtype}", cache=cache, update=(2, 3, 4, 8), indices=(5, 0), dtype=dtype, quick=dtype == "float32"
        )
        yield scatter_case(
            f"circular/{dtype}",
            cache=cache,
            update=(2, 3, 4, 8),
            indices=(7, 22),
            mode="circular",
            dtype=dtype,
            quick=True,
        )
    yield scatter_case("no_indices", cache=cache, update=(2, 3, 9, 8), quick=True)
    yield scatter_case("axis_1", cache=(2, 9, 24), update=(2, 2, 24), indices=(7, 3), axis=1, quick=True)
    yield scatter_case("axis_last", cache=(2, 5, 9), update=(2, 5, 1), indices=(8, 3), axis=-1)
    yield scatter_case("empty_update", cache=cache, update=(2, 3, 0, 8), indices=(9, 0))

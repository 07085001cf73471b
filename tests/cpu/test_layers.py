"""The layers' kernels on every level against float64, with the weights that the `gguf` package dequantises."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from kernels_kit import LEVELS, count_of

from pageloom.model.quantization import FORMATS

kernels = pytest.importorskip("pageloom_cpu", reason="the compiled kernels are not installed")

Array = npt.NDArray[Any]
BLOCKS = {block.name: block for block in FORMATS.values()}
HALF_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}  # fmt: skip
"""Byte offsets of the f16 scales and minimums of a block; everything else in a block may be any bits."""
SENTINEL = 7.0


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260131)


def random_rows(rng: np.random.Generator, name: str, rows: int, columns: int) -> Array:
    """uint8[rows, bytes a row]: every bit pattern of the codes, scales of the sizes that models have."""
    block = BLOCKS[name]
    if name in ("F32", "F16", "BF16"):
        values = (0.05 * rng.standard_normal((rows, columns))).astype(np.float32)
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType[name]).view(np.uint8)
    raw = rng.integers(0, 256, (rows, columns // block.elements, block.bytes), dtype=np.uint8)
    for offset in HALF_FIELDS[name]:
        scales = rng.uniform(0.001, 0.02, raw.shape[:2]) * rng.choice([-1, 1], raw.shape[:2])
        raw[:, :, offset : offset + 2] = scales.astype(np.float16)[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


def dequantized(name: str, raw: Array) -> Array:
    """float64[rows, columns], by the `gguf` package."""
    data = raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name]).astype(np.float64)


def matrix_of(name: str, raw: Array, level: str) -> kernels.Matrix:
    """Loaded in two pieces, the second of which begins within a panel."""
    rows = len(raw)
    columns = raw.shape[1] // BLOCKS[name].bytes * BLOCKS[name].elements
    matrix = kernels.Matrix(rows, columns, name, level=level)
    matrix.load(raw[: rows // 3].reshape(-1))
    matrix.load(raw[rows // 3 :].reshape(-1), rows // 3)
    return matrix


def poisoned(values: Array, rows: int) -> Array:
    """`values` as float32 with rows of NaN behind them, `rows` in all."""
    return np.concatenate([values, np.full((rows - len(values), values.shape[1]), np.nan)]).astype(np.float32)


def budget(x: Array, weight: Array) -> Array:
    """How far a float32 product may be from the exact one: a few roundings (2^-24) of the sum of magnitudes.

    Sums in float32 stay below this in any order; rounding an activation to 8 or even 16 bits goes far beyond.
    """
    return 16 * 2.0**-24 * (np.abs(x).astype(np.float64) @ np.abs(weight).T) + 1e-30


def columns_of(name: str, blocks: int) -> int:
    """A length of odd parts: whole blocks where the format has some."""
    return 1 + 37 * blocks if BLOCKS[name].elements == 1 else blocks * BLOCKS[name].elements


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 11, 16, 29])
def test_linear_is_the_product_with_what_the_format_stands_for(
    rng: np.random.Generator, name: str, level: str, tokens: int
) -> None:
    rows, columns = 83, columns_of(name, 3)
    raw = random_rows(rng, name, rows, columns)
    weight = dequantized(name, raw)
    x = rng.standard_normal((tokens, columns)).astype(np.float32)
    output = np.full((tokens + 1, rows), SENTINEL, np.float32)
    kernels.Linear([matrix_of(name, raw, level)], poisoned(x, tokens + 2), output, count_of(tokens))()
    assert (np.abs(output[:tokens] - x.astype(np.float64) @ weight.T) <= budget(x, weight)).all()
    assert (output[tokens:] == SENTINEL).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", BLOCKS)
def test_a_row_does_not_depend_on_how_many_there_are(rng: np.random.Generator, name: str, level: str) -> None:
    columns = columns_of(name, 2)
    matrix = matrix_of(name, random_rows(rng, name, 40, columns), level)
    x = rng.standard_normal((200, columns)).astype(np.float32)

    def product(tokens: int) -> Array:
        output = np.empty((tokens, 40), np.float32)
        kernels.Linear([matrix], x, output, count_of(tokens))()
        return output

    together = product(200)
    for tokens in (1, 2, 3, 4, 5, 9, 15, 16, 17, 64):
        np.testing.assert_array_equal(product(tokens), together[:tokens])


@pytest.mark.parametrize("level", LEVELS)
def test_long_rows_are_taken_in_pieces_with_the_same_result(rng: np.random.Generator, level: str) -> None:
    columns = 40 * 256
    raw = random_rows(rng, "Q4_K", 33, columns)
    weight = dequantized("Q4_K", raw)
    x = rng.standard_normal((13, columns)).astype(np.float32)
    many, one = np.empty((13, 33), np.float32), np.empty((1, 33), np.float32)
    matrix = matrix_of("Q4_K", raw, level)
    kernels.Linear([matrix], x, many, count_of(13))()
    kernels.Linear([matrix], x[12:], one, count_of(1))()
    assert (np.abs(many - x.astype(np.float64) @ weight.T) <= budget(x, weight)).all()
    np.testing.assert_array_equal(one[0], many[12])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tokens", [1, 17])
def test_matrices_of_several_formats_are_one_with_biases_a_residual_and_a_softcap(
    rng: np.random.Generator, level: str, tokens: int
) -> None:
    names, sizes = ["Q4_K", "Q6_K", "F16"], [30, 17, 5]
    raws = [random_rows(rng, name, size, 256) for name, size in zip(names, sizes, strict=True)]
    weight = np.concatenate([dequantized(name, raw) for name, raw in zip(names, raws, strict=True)])
    x = rng.standard_normal((tokens, 256)).astype(np.float32)
    bias = rng.standard_normal(30).astype(np.float32)
    residual = rng.standard_normal((tokens, 52)).astype(np.float32)
    output = residual.copy()
    kernels.Linear(
        [matrix_of(name, raw, level) for name, raw in zip(names, raws, strict=True)],
        x,
        output,
        count_of(tokens),
        biases=[bias, None, None],
        residual=output,
        softcap=2.0,
    )()
    product = x.astype(np.float64) @ weight.T + np.concatenate([bias, np.zeros(22)])
    allowed = budget(x, weight) + 1e-6
    assert (np.abs(output - (2 * np.tanh(product / 2) + residual)) <= allowed).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tokens", [1, 4, 30])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gated_linear(rng: np.random.Generator, level: str, tokens: int, activation: str) -> None:
    gate, up = random_rows(rng, "Q5_K", 50, 256), random_rows(rng, "Q8_0", 50, 256)
    x = (3 * rng.standard_normal((tokens, 256))).astype(np.float32)
    output = np.empty((tokens, 50), np.float32)
    kernels.GatedLinear(
        matrix_of("Q5_K", gate, level),
        matrix_of("Q8_0", up, level),
        x,
        output,
        count_of(tokens),
        activation=activation,
    )()
    a, b = (x.astype(np.float64) @ dequantized(name, raw).T for name, raw in (("Q5_K", gate), ("Q8_0", up)))
    tanh = np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))
    activated = a / (1 + np.exp(-np.maximum(a, -700))) if activation == "silu" else 0.5 * a * (1 + tanh)
    gate_budget, up_budget = budget(x, dequantized("Q5_K", gate)), budget(x, dequantized("Q8_0", up))
    allowed = 1.2 * gate_budget * np.abs(b) + up_budget * np.abs(activated) + 2e-6 * np.abs(a * b) + 1e-6
    assert (np.abs(output - activated * b) <= allowed).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_a_gate_of_any_size_is_finite(level: str, activation: str) -> None:
    gates = np.array([-3e38, -1e4, -90.0, -88.0, 0.0, 88.0, 1e4, 3e38], np.float32)
    gate, up = (kernels.Matrix(1, 2, "F32", level=level) for _ in range(2))
    gate.load(np.array([1, 0], np.float32).view(np.uint8))
    up.load(np.array([0, 1], np.float32).view(np.uint8))
    output = np.empty((8, 1), np.float32)
    x = np.stack([gates, np.ones(8, np.float32)], axis=1)
    kernels.GatedLinear(gate, up, x, output, count_of(8), activation=activation)()
    np.testing.assert_allclose(output[:, 0], np.maximum(gates, 0), atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", BLOCKS)
def test_an_embedding_row_is_the_row_of_the_file(rng: np.random.Generator, name: str, level: str) -> None:
    columns = columns_of(name, 2)
    raw = random_rows(rng, name, 37, columns)
    ids = np.array([36, 0, 17, 16, -1, 37, 5], np.int32)
    output = np.full((7, columns), SENTINEL, np.float32)
    kernels.Embed(matrix_of(name, raw, level), ids, output, count_of(6), scale=1.5)()
    expected = 1.5 * dequantized(name, raw)[ids[:4]]
    assert (np.abs(output[:4] - expected) <= 4 * 2.0**-24 * (np.abs(expected) + 1)).all()
    assert (output[4:6] == 0).all()
    assert (output[6] == SENTINEL).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("width", [1, 15, 64, 577])
def test_rms_norm(rng: np.random.Generator, level: str, width: int) -> None:
    x = rng.standard_normal((40, width)).astype(np.float32)
    weight, residual = (
        rng.standard_normal(width).astype(np.float32),
        rng.standard_normal((40, width)).astype(np.float32),
    )
    output = np.full((40, width), SENTINEL, np.float32)
    kernels.RmsNorm(x, weight, output, count_of(39), epsilon=1e-5, residual=residual, level=level)()
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * weight + residual
    np.testing.assert_allclose(output[:39], expected[:39], atol=1e-5)
    assert (output[39] == SENTINEL).all()


def test_a_step_runs_its_calls_in_order(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 8)).astype(np.float32)
    selected, normed, count = np.empty((2, 8), np.float32), np.empty((2, 8), np.float32), count_of(2)
    gain = np.ones(8, np.float32)
    step = kernels.Step(
        [
            kernels.SelectRows(x, np.array([1, 0], np.int32), selected, count),
            kernels.RmsNorm(selected, gain, normed, count, epsilon=0.0),
        ]
    )
    del selected
    step()
    np.testing.assert_allclose(normed, (x / np.sqrt((x * x).mean(axis=1, keepdims=True)))[::-1], rtol=1e-5)
    with pytest.raises(ValueError, match="none of this module's calls"):
        kernels.Step([step])


@pytest.mark.parametrize(
    ("name", "block", "message"),
    [
        ("Q4_1", np.array([0, np.inf], np.float16).tobytes() + bytes(16), "not finite"),
        ("F32", np.array([np.nan] * 32, np.float32).tobytes(), "not finite"),
        ("BF16", b"\x80\x7f" * 32, "not finite"),
        ("Q6_K", bytes(208) + np.array([np.nan], np.float16).tobytes(), "not finite"),
        ("Q8_0", bytes(33), "multiple of the 34 bytes"),
        ("Q8_0", bytes(68), "leave the matrix"),
    ],
)
def test_rows_that_are_not_finite_or_do_not_fit_are_refused(name: str, block: bytes, message: str) -> None:
    matrix = kernels.Matrix(1, 256 if name == "Q6_K" else 32, name)
    with pytest.raises(ValueError, match=message):
        matrix.load(np.frombuffer(block, np.uint8))


def test_shapes_and_formats_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="known are F32, F16"):
        kernels.Matrix(4, 32, "IQ4_NL")
    with pytest.raises(ValueError, match="multiple of the 256"):
        kernels.Matrix(4, 32, "Q4_K")
    matrix, values = kernels.Matrix(4, 32, "Q4_0"), np.zeros((3, 32), np.float32)
    with pytest.raises(ValueError, match="input has rows of 31; 32"):
        kernels.Linear([matrix], values[:, :31], np.zeros((3, 4), np.float32), count_of(3))
    with pytest.raises(ValueError, match="output has rows of 5; 4"):
        kernels.Linear([matrix], values, np.zeros((3, 5), np.float32), count_of(3))
    with pytest.raises(ValueError, match="float32"):
        kernels.Linear([matrix], values.astype(np.float64), np.zeros((3, 4), np.float32), count_of(3))
    with pytest.raises(ValueError, match="silu and gelu_tanh"):
        kernels.GatedLinear(matrix, matrix, values, np.zeros((3, 4), np.float32), count_of(3), activation="relu")

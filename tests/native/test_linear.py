"""Linear programs against float64 products with the weights that the `gguf` package dequantises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from weights_kit import BLOCKS, Bench, as_source, dequantized, random_tensor, step_words

from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.programs.linear import Variant, choose_linear, plan_gated_linear, plan_linear
from pageloom.backends.webgpu.weights import DeviceWeight, load_weight
from pageloom.errors import InvalidArgument

VARIANTS: list[Variant] = ["software", "matrix_vector", "tiled"]
SENTINEL = 7.0


def budget(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """How far an f32 product may be from the exact one: a few roundings (2^-24) of the sum of magnitudes.

    Signs of rounding errors vary, so they grow with the square root of the number of terms and the sum of magnitudes
    with the number itself: f32 sums of any order stay below this, and any rounding to f16 on the way goes beyond.
    """
    magnitudes = np.abs(x.astype(np.float64)) @ np.abs(weight).T
    return 16 * 2.0**-24 * magnitudes + 1e-30


@pytest.fixture(scope="module")
def bench(device: NativeDevice) -> Bench:
    return Bench(device, ProgramCache(device))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260101)


async def load(
    bench: Bench, tensors: list[tuple[str, np.ndarray]], *, interleaved: bool = False
) -> tuple[DeviceWeight, np.ndarray]:
    """The weight on the device and its values."""
    source, infos = as_source(tensors)
    weight = await load_weight(bench.device, bench.programs, source, infos, "weight", interleaved=interleaved)
    values = [dequantized(name, raw) for name, raw in tensors]
    return weight, np.stack(values, 1).reshape(-1, values[0].shape[1]) if interleaved else np.concatenate(values)


def poisoned(values: np.ndarray, rows: int, poison: float = np.nan) -> np.ndarray:
    """`values` as float32 with rows of poison behind them, `rows` in all."""
    padding = np.full((rows - len(values), values.shape[1]), poison)
    return np.concatenate([values, padding]).astype(np.float32)


async def product(
    bench: Bench, weight: DeviceWeight, x: np.ndarray, max_tokens: int, variant: Variant | None = None
) -> np.ndarray:
    """`x @ weight.T` in a step of len(x) tokens, run in buffers of `max_tokens` rows that are poisoned beyond."""
    shape = (max_tokens, weight.out_features)
    source, target = bench.put(poisoned(x, max_tokens)), bench.put(np.full(shape, SENTINEL, np.float32))
    step = bench.put(step_words(num_tokens=len(x)))
    info = bench.device.info
    await bench.run(plan_linear(info, weight, source, target, step, max_tokens=max_tokens, variant=variant))
    result = await bench.get(target, shape)
    np.testing.assert_array_equal(result[len(x) :], SENTINEL)
    return result[: len(x)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", BLOCKS)
async def test_every_format_gives_the_exact_product_within_the_budget(
    bench: Bench, rng: np.random.Generator, name: str, variant: Variant
) -> None:
    weight, values = await load(bench, [(name, random_tensor(rng, name, 37, 512))])
    x = rng.standard_normal((1, 512)).astype(np.float32)
    result = await product(bench, weight, x, 1, variant)
    np.testing.assert_array_less(np.abs(result - x.astype(np.float64) @ values.T), budget(x, values))


@pytest.mark.parametrize("variant", VARIANTS)
async def test_every_number_of_tokens(bench: Bench, rng: np.random.Generator, variant: Variant) -> None:
    weight, values = await load(bench, [("Q4_1", random_tensor(rng, "Q4_1", 37, 512))])
    for tokens, max_tokens in [(1, 1), (1, 4), (2, 4), (3, 4), (5, 8), (16, 16), (17, 32), (33, 64)]:
        x = rng.standard_normal((tokens, 512)).astype(np.float32)
        result = await product(bench, weight, x, max_tokens, variant)
        np.testing.assert_array_less(np.abs(result - x.astype(np.float64) @ values.T), budget(x, values))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("name", "columns"), [("F16", 36), ("F32", 4), ("BF16", 100)])
async def test_float_rows_that_are_no_whole_chunk_read_no_input_of_the_next_token(
    bench: Bench, rng: np.random.Generator, name: str, columns: int, variant: Variant
) -> None:
    weight, values = await load(bench, [(name, random_tensor(rng, name, 11, columns))])
    x = rng.standard_normal((1, columns)).astype(np.float32)
    result = await product(bench, weight, x, 3, variant)
    np.testing.assert_array_less(np.abs(result - x.astype(np.float64) @ values.T), budget(x, values))


@pytest.mark.parametrize("variant", VARIANTS)
async def test_half_weights_without_the_f16_type(
    limited_device: Callable[..., Awaitable[NativeDevice]], rng: np.random.Generator, variant: Variant
) -> None:
    device = await limited_device(without_features=("shader-f16",))
    bench = Bench(device, ProgramCache(device))
    weight, values = await load(bench, [("F16", random_tensor(rng, "F16", 33, 64))])
    x = rng.standard_normal((2, 64)).astype(np.float32)
    result = await product(bench, weight, x, 2, variant)
    np.testing.assert_array_less(np.abs(result - x.astype(np.float64) @ values.T), budget(x, values))


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K"])
async def test_on_a_cpu_a_token_alone_equals_itself_in_any_batch_bit_for_bit(
    bench: Bench, rng: np.random.Generator, name: str
) -> None:
    weight, _ = await load(bench, [(name, random_tensor(rng, name, 37, 512))])
    x = rng.standard_normal((9, 512)).astype(np.float32)
    alone = np.concatenate([await product(bench, weight, x[t : t + 1], 1, "software") for t in range(9)])
    for tokens, max_tokens in [(1, 2), (2, 2), (3, 4), (5, 8), (9, 16), (9, 32), (9, 64)]:
        together = await product(bench, weight, x[:tokens], max_tokens, "software")
        np.testing.assert_array_equal(together.view(np.uint32), alone[:tokens].view(np.uint32))


async def test_without_subgroups_the_result_is_the_same_bit_for_bit(
    bench: Bench, limited_device: Callable[..., Awaitable[NativeDevice]], rng: np.random.Generator
) -> None:
    plain_device = await limited_device(without_features=("subgroups", "subgroup-size-control"))
    tensors = [("Q4_1", random_tensor(rng, "Q4_1", 37, 512))]
    x = rng.standard_normal((1, 512)).astype(np.float32)
    results = []
    for each in (bench, Bench(plain_device, ProgramCache(plain_device))):
        weight, _ = await load(each, tensors)
        results.append(await product(each, weight, x, 1, "software"))
    np.testing.assert_array_equal(*results)


async def test_matrix_vector_sums_in_one_order_whatever_the_number_of_tokens(
    bench: Bench, rng: np.random.Generator
) -> None:
    weight, _ = await load(bench, [("Q4_1", random_tensor(rng, "Q4_1", 37, 512))])
    x = rng.standard_normal((4, 512)).astype(np.float32)
    alone = np.concatenate([await product(bench, weight, x[t : t + 1], 1, "matrix_vector") for t in range(4)])
    for max_tokens in (4, 8):
        np.testing.assert_array_equal(await product(bench, weight, x, max_tokens, "matrix_vector"), alone)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("tokens", "in_place", "with_bias"), [(1, False, True), (3, True, False)])
async def test_residual_and_bias_are_added(
    bench: Bench, rng: np.random.Generator, tokens: int, in_place: bool, with_bias: bool, variant: Variant
) -> None:
    weight, values = await load(bench, [("Q8_0", random_tensor(rng, "Q8_0", 37, 64))])
    x = rng.standard_normal((tokens, 64)).astype(np.float32)
    bias, residual = rng.standard_normal(37).astype(np.float32), rng.standard_normal((tokens, 37)).astype(np.float32)
    residual_buffer = bench.put(residual)
    target = residual_buffer if in_place else bench.put(np.full((tokens, 37), SENTINEL, np.float32))
    planned = plan_linear(
        bench.device.info,
        weight,
        bench.put(x),
        target,
        bench.put(step_words(num_tokens=tokens)),
        max_tokens=tokens,
        residual=residual_buffer,
        bias=bench.put(bias) if with_bias else None,
        variant=variant,
    )
    await bench.run(planned)
    expected = x.astype(np.float64) @ values.T + residual + (bias if with_bias else 0)
    tolerance = budget(x, values) + 2**-22 * np.abs(residual)
    np.testing.assert_array_less(np.abs(await bench.get(target, (tokens, 37)) - expected), tolerance)


@pytest.mark.parametrize("variant", VARIANTS)
async def test_softcap_bends_the_sum(bench: Bench, rng: np.random.Generator, variant: Variant) -> None:
    weight, values = await load(bench, [("Q8_0", random_tensor(rng, "Q8_0", 37, 64))])
    x = (10 * rng.standard_normal((1, 64))).astype(np.float32)
    target, step = bench.put(np.zeros((1, 37), np.float32)), bench.put(step_words(num_tokens=1))
    planned = plan_linear(
        bench.device.info, weight, bench.put(x), target, step, max_tokens=1, softcap=0.5, variant=variant
    )
    await bench.run(planned)
    # WGSL allows tanh an absolute error of 1e-5.
    expected = 0.5 * np.tanh(x.astype(np.float64) @ values.T / 0.5)
    np.testing.assert_allclose(await bench.get(target, (1, 37)), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
async def test_gated_linear_pairs_gate_and_up(
    bench: Bench, rng: np.random.Generator, activation: str, variant: Variant
) -> None:
    tensors = [("Q4_1", random_tensor(rng, "Q4_1", 37, 64)) for _ in range(2)]
    weight, _ = await load(bench, tensors, interleaved=True)
    x = (20 * rng.standard_normal((3, 64))).astype(np.float32)
    gate, up = (x.astype(np.float64) @ dequantized(*tensor).T for tensor in tensors)
    cubic = 0.7978845608028654 * (gate + 0.044715 * gate**3)
    activated = gate / (1 + np.exp(-gate)) if activation == "silu" else 0.5 * gate * (1 + np.tanh(cubic))
    target = bench.put(np.full((4, 37), SENTINEL, np.float32))
    planned = plan_gated_linear(
        bench.device.info,
        weight,
        bench.put(poisoned(x, 4)),
        target,
        bench.put(step_words(num_tokens=3)),
        max_tokens=4,
        activation=activation,
        variant=variant,
    )
    await bench.run(planned)
    result = await bench.get(target, (4, 37))
    np.testing.assert_array_equal(result[3], SENTINEL)
    np.testing.assert_allclose(result[:3], activated * up, rtol=1e-4, atol=3e-5 * np.abs(gate * up).max())


async def test_weights_joined_by_rows_are_one_matrix_whatever_their_formats(
    bench: Bench, rng: np.random.Generator
) -> None:
    for names in [("Q4_K", "Q4_K", "Q6_K"), ("Q4_0", "Q8_0"), ("Q4_1", "Q5_0"), ("Q8_0", "F16")]:
        tensors = [(name, random_tensor(rng, name, rows, 256)) for name, rows in zip(names, (33, 7, 12), strict=False)]
        weight, values = await load(bench, tensors)
        x = rng.standard_normal((1, 256)).astype(np.float32)
        result = await product(bench, weight, x, 1)
        np.testing.assert_array_less(np.abs(result - x.astype(np.float64) @ values.T), budget(x, values))


async def test_wanted_rows_are_counted_by_the_logits_rows(bench: Bench, rng: np.random.Generator) -> None:
    weight, values = await load(bench, [("Q8_0", random_tensor(rng, "Q8_0", 67, 64))])
    x = rng.standard_normal((2, 64)).astype(np.float32)
    target = bench.put(np.full((4, 67), SENTINEL, np.float32))
    step = bench.put(step_words(num_tokens=9, LOGITS_ROWS=[3, 8]))
    source = bench.put(poisoned(x, 4))
    await bench.run(plan_linear(bench.device.info, weight, source, target, step, max_tokens=4, rows="logits_rows"))
    result = await bench.get(target, (4, 67))
    np.testing.assert_array_equal(result[2:], SENTINEL)
    np.testing.assert_array_less(np.abs(result[:2] - x.astype(np.float64) @ values.T), budget(x, values))


@pytest.mark.parametrize("variant", VARIANTS)
async def test_weights_beyond_the_binding_limit_are_split_by_rows(
    limited_device: Callable[..., Awaitable[NativeDevice]], rng: np.random.Generator, variant: Variant
) -> None:
    device = await limited_device({"maxStorageBufferBindingSize": 2**15, "maxBufferSize": 2**16})
    bench = Bench(device, ProgramCache(device))
    tensors = [("Q8_0", random_tensor(rng, "Q8_0", 401, 96)) for _ in range(2)]
    for interleaved in (False, True):
        weight, values = await load(bench, tensors, interleaved=interleaved)
        assert len(weight.shards) == 3
        assert all(buffer.size <= 2**15 for shard in weight.shards for buffer in shard.buffers)
        x = rng.standard_normal((1, 96)).astype(np.float32)
        if not interleaved:
            result = await product(bench, weight, x, 1, variant)
            np.testing.assert_array_less(np.abs(result - x.astype(np.float64) @ values.T), budget(x, values))
        else:
            target = bench.put(np.zeros((1, 401), np.float32))
            step = bench.put(step_words(num_tokens=1))
            planned = plan_gated_linear(
                device.info, weight, bench.put(x), target, step, max_tokens=1, activation="silu", variant=variant
            )
            await bench.run(planned)
            gate, up = (x.astype(np.float64) @ values[side::2].T for side in range(2))
            expected = gate / (1 + np.exp(-gate)) * up
            result = await bench.get(target, (1, 401))
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5 * np.abs(gate * up).max())
        weight.destroy()


@pytest.mark.parametrize("variant", VARIANTS)
async def test_more_workgroups_than_one_dimension_holds(
    limited_device: Callable[..., Awaitable[NativeDevice]], rng: np.random.Generator, variant: Variant
) -> None:
    device = await limited_device({"maxComputeWorkgroupsPerDimension": 48})
    bench = Bench(device, ProgramCache(device))
    weight, values = await load(bench, [("F32", random_tensor(rng, "F32", 4099, 4))])
    x = rng.standard_normal((1, 4)).astype(np.float32)
    result = await product(bench, weight, x, 1, variant)
    np.testing.assert_array_less(np.abs(result - x.astype(np.float64) @ values.T), budget(x, values))


@pytest.mark.parametrize("variant", VARIANTS)
async def test_sums_beyond_the_range_of_f16_are_exact(bench: Bench, variant: Variant) -> None:
    eights = np.full((5, 4096), 8, np.float16)
    weight, _ = await load(bench, [("F16", eights.view(np.uint8))])
    result = await product(bench, weight, np.full((1, 4096), 8, np.float32), 1, variant)
    np.testing.assert_array_equal(result, 4096 * 64.0)


def test_the_choice_follows_the_adapter_and_says_why(device: NativeDevice) -> None:
    choice = choose_linear(device.info, 16)
    assert choice.variant == "software"
    assert "CPU" in choice.reason


async def test_an_interleaved_weight_and_a_plain_one_are_not_mistaken_for_each_other(
    bench: Bench, rng: np.random.Generator
) -> None:
    tensors = [("Q8_0", random_tensor(rng, "Q8_0", 8, 32)) for _ in range(2)]
    buffer = bench.device.buffer(4096)
    plain, _ = await load(bench, tensors)
    interleaved, _ = await load(bench, tensors, interleaved=True)
    with pytest.raises(InvalidArgument, match="interleaved"):
        plan_linear(bench.device.info, interleaved, buffer, buffer, buffer, max_tokens=1)
    with pytest.raises(InvalidArgument, match="interleaved"):
        plan_gated_linear(bench.device.info, plain, buffer, buffer, buffer, max_tokens=1, activation="silu")

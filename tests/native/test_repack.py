"""Weights on the device hold what the file says, exactly, however they are joined, split and fed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from weights_kit import BLOCKS, HALF_FIELDS, Bench, BytesSource, as_source, dequantized, random_tensor

from pageloom.backends.webgpu import weights
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.weight_layout import Encoding, describe_weight
from pageloom.backends.webgpu.weights import DeviceWeight, load_vector, load_weight
from pageloom.errors import BadModelFile, NotSupported

JOINED = [
    ("Q4_0", "Q8_0"),
    ("Q4_1", "Q5_0", "Q8_0"),
    ("Q4_K", "Q6_K"),
    ("Q5_1", "Q5_K"),
    ("F16", "BF16"),
    ("Q6_K", "F32"),
]


@pytest.fixture(scope="module")
def bench(device: NativeDevice) -> Bench:
    return Bench(device, ProgramCache(device))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def unpacked_codes(encoding: Encoding, words: np.ndarray) -> np.ndarray:
    """float64[chunks, 32] from uint32[chunks, words a chunk], as the module documentation of `weight_layout` has it."""
    if encoding.codes == "q4":
        data = words.view(np.uint8)
        return np.concatenate([data & 15, data >> 4], axis=1).astype(np.float64)
    if encoding.codes == "bf16":
        halves = words.view(np.uint16).astype(np.uint32) << 16
        return halves.view(np.float32).astype(np.float64)
    kinds = {"q8": np.uint8, "f16": np.float16, "f32": np.float32}
    return words.view(kinds[encoding.codes]).astype(np.float64)


def unpacked_scales(encoding: Encoding, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and minimum, float64[groups] each, from uint32 words."""
    if encoding.scales == "scale":
        scale = words.view(np.float32).astype(np.float64)
        return scale, -encoding.zero * scale
    pairs = words.view(np.float16 if encoding.scales == "half_pair" else np.float32).astype(np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


async def stored(bench: Bench, weight: DeviceWeight) -> tuple[np.ndarray, np.ndarray]:
    """The weight's values in float64, and the magnitude of what each was summed from."""
    encoding, chunks = weight.layout.encoding, weight.layout.chunks
    rows, magnitudes = [], []
    for shard in weight.shards:
        count = len(shard.rows) * chunks
        codes = unpacked_codes(
            encoding, await bench.get(shard.codes, (count, encoding.chunk_code_bytes // 4), np.uint32)
        )
        value = magnitude = codes
        if shard.scales is not None:
            words = await bench.get(shard.scales, (count * encoding.chunk_scale_bytes // 4,), np.uint32)
            scale, minimum = (
                np.repeat(part, encoding.group).reshape(codes.shape) for part in unpacked_scales(encoding, words)
            )
            value, magnitude = scale * codes + minimum, np.abs(scale * codes) + np.abs(minimum)
        rows.append(value.reshape(len(shard.rows), -1))
        magnitudes.append(np.abs(magnitude).reshape(len(shard.rows), -1))
    columns = weight.in_features
    np.testing.assert_array_equal(np.concatenate(rows)[:, columns:], 0)
    return np.concatenate(rows)[:, :columns], np.concatenate(magnitudes)[:, :columns]


async def assert_holds(bench: Bench, weight: DeviceWeight, expected: np.ndarray) -> None:
    """The `gguf` package rounds a value to f32 at most three times; what the device stores is exact."""
    values, magnitudes = await stored(bench, weight)
    np.testing.assert_array_less(np.abs(values - expected), 3 * 2.0**-24 * magnitudes + 1e-300)


@pytest.mark.parametrize("name", BLOCKS)
async def test_every_format_is_held_exactly(bench: Bench, rng: np.random.Generator, name: str) -> None:
    raw = random_tensor(rng, name, 7, 768)
    source, infos = as_source([(name, raw)])
    weight = await load_weight(bench.device, bench.programs, source, infos, name)
    await assert_holds(bench, weight, dequantized(name, raw))
    buffers = [buffer for shard in weight.shards for buffer in shard.buffers]
    assert sum(buffer.size for buffer in buffers) == describe_weight(infos, "software").bytes == weight.layout.bytes


NOT_FINITE = {
    "F32": (np.float32(np.inf), 4), "BF16": (np.uint16(0xFF80), 2), "F16": (np.float16(np.nan), 2),
    **{name: (np.float16(-np.inf), offset) for name, (*_, offset) in HALF_FIELDS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
async def test_a_number_that_is_not_finite_is_refused_by_the_name_of_its_weight(
    bench: Bench, rng: np.random.Generator, name: str
) -> None:
    raw = random_tensor(rng, name, 3, 256)
    number, offset = NOT_FINITE[name]
    raw[2, offset : offset + number.nbytes] = np.frombuffer(number.tobytes(), np.uint8)
    source, infos = as_source([(name, random_tensor(rng, name, 3, 256)), (name, raw)])
    with pytest.raises(BadModelFile, match="mixed holds an infinite number, or what is no number") as refusal:
        await load_weight(bench.device, bench.programs, source, infos, "mixed")
    assert refusal.value.param == "mixed"


async def test_a_vector_that_is_not_finite_is_refused_by_its_name(bench: Bench, rng: np.random.Generator) -> None:
    raw = random_tensor(rng, "F32", 1, 12)
    raw.view(np.float32)[0, 11] = np.nan
    source, infos = as_source([("F32", raw)])
    with pytest.raises(BadModelFile, match="tensor0 holds an infinite number"):
        await load_vector(bench.device, source, infos, "gain")


async def test_pairs_of_halves_are_kept_as_they_are_on_a_gpu(bench: Bench, rng: np.random.Generator) -> None:
    raw = random_tensor(rng, "Q4_1", 3, 64)
    source, infos = as_source([("Q4_1", raw)])
    layout = describe_weight(infos, "gpu")
    assert layout.encoding.scales == "half_pair"
    assert layout.bytes == raw.nbytes
    described = weights.describe_weight
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "describe_weight", lambda tensors, _: described(tensors, "gpu"))
        weight = await load_weight(bench.device, bench.programs, source, infos, "halves")
    await assert_holds(bench, weight, dequantized("Q4_1", raw))


@pytest.mark.parametrize("name", ["F16", "BF16", "F32"])
async def test_float_rows_are_padded_to_whole_chunks_with_zeros(
    bench: Bench, rng: np.random.Generator, name: str
) -> None:
    raw = random_tensor(rng, name, 5, 44)
    source, infos = as_source([(name, raw)])
    await assert_holds(
        bench, await load_weight(bench.device, bench.programs, source, infos, name), dequantized(name, raw)
    )


@pytest.mark.parametrize("names", JOINED, ids="+".join)
async def test_joined_tensors_of_any_formats_are_held_exactly(
    bench: Bench, rng: np.random.Generator, names: tuple[str, ...]
) -> None:
    tensors = [(name, random_tensor(rng, name, 3 + index, 256)) for index, name in enumerate(names)]
    source, infos = as_source(tensors)
    weight = await load_weight(bench.device, bench.programs, source, infos, "joined")
    await assert_holds(bench, weight, np.concatenate([dequantized(*tensor) for tensor in tensors]))


@pytest.mark.parametrize("interleaved", [False, True])
async def test_small_bindings_and_small_pieces_change_nothing(
    limited_device: Callable[..., Awaitable[NativeDevice]],
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    interleaved: bool,
) -> None:
    monkeypatch.setattr(weights, "STAGING_BYTES", 5000)
    device = await limited_device({"maxStorageBufferBindingSize": 16384, "maxBufferSize": 20000})
    bench = Bench(device, ProgramCache(device))
    tensors = [("Q8_0", random_tensor(rng, "Q8_0", 131, 96)) for _ in range(2)]
    source, infos = as_source(tensors)
    arrived: list[int] = []
    weight = await load_weight(
        device, bench.programs, source, infos, "split", interleaved=interleaved, on_bytes=arrived.append
    )
    assert [shard.rows for shard in weight.shards] == [range(128), range(128, 256), range(256, 262)]
    assert max(arrived) <= 5000
    assert sum(arrived) == sum(info.size for info in infos)
    values = [dequantized(*tensor) for tensor in tensors]
    expected = np.stack(values, 1).reshape(262, 96) if interleaved else np.concatenate(values)
    await assert_holds(bench, weight, expected)


async def test_a_row_larger_than_a_binding_is_refused_with_the_numbers(
    limited_device: Callable[..., Awaitable[NativeDevice]], rng: np.random.Generator
) -> None:
    device = await limited_device({"maxStorageBufferBindingSize": 4096})
    source, infos = as_source([("F32", random_tensor(rng, "F32", 4, 1024))])
    with pytest.raises(NotSupported, match=r"8192 bytes.*at most 4096"):
        await load_weight(device, ProgramCache(device), source, infos, "wide")


async def test_rows_of_an_odd_number_of_floats_are_refused(bench: Bench, rng: np.random.Generator) -> None:
    source, infos = as_source([("F16", random_tensor(rng, "F16", 4, 6))])
    with pytest.raises(NotSupported, match="multiple of 4"):
        await load_weight(bench.device, bench.programs, source, infos, "odd")


async def test_a_source_that_fails_half_way_leaves_the_device_usable(bench: Bench, rng: np.random.Generator) -> None:
    class Torn(BytesSource):
        async def read(self, offset: int, length: int) -> bytes:
            raise BadModelFile("the file ends here")

    raw = random_tensor(rng, "Q8_0", 4, 64)
    source, infos = as_source([("Q8_0", raw)])
    with pytest.raises(BadModelFile, match="ends here"):
        await load_weight(bench.device, bench.programs, Torn(source.data), infos, "torn")
    weight = await load_weight(bench.device, bench.programs, source, infos, "whole")
    await assert_holds(bench, weight, dequantized("Q8_0", raw))


async def test_vectors_are_joined_with_zeros_for_what_is_missing(bench: Bench, rng: np.random.Generator) -> None:
    tensors = [("F32", random_tensor(rng, "F32", 1, 12)), ("F16", random_tensor(rng, "F16", 1, 8))]
    source, (first, second) = as_source(tensors)
    buffer = await load_vector(bench.device, source, [first, 5, second], "bias")
    expected = np.concatenate([dequantized(*tensors[0])[0], np.zeros(5), dequantized(*tensors[1])[0]])
    np.testing.assert_array_equal(await bench.get(buffer, (25,)), expected.astype(np.float32))

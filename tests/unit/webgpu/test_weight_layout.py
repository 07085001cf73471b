"""How weights are laid out and split, and which variant multiplies by them: decided without a device."""

from __future__ import annotations

import dataclasses

import pytest

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.programs.linear import choose_linear
from pageloom.backends.webgpu.weight_layout import (
    ENCODINGS,
    Encoding,
    WeightLayout,
    common_encoding,
    describe_weight,
)
from pageloom.errors import NotSupported
from pageloom.model.gguf import TensorInfo
from pageloom.model.quantization import FORMATS, Q4_1, Q8_0

LIMITS = {"maxStorageBufferBindingSize": 2**27, "maxBufferSize": 2**28}
GPU = DeviceInfo("acme", "plain", "Acme", "native", "gpu", frozenset(), LIMITS)
CPU = dataclasses.replace(GPU, adapter_class="software")


def test_every_gguf_format_has_an_encoding() -> None:
    assert set(ENCODINGS) == {block.name for block in FORMATS.values()}


@pytest.mark.parametrize(
    ("formats", "expected"),
    [
        (["Q4_1"], Encoding("q4", "half_pair")),
        (["Q4_0", "Q8_0"], Encoding("q8", "scale", 128)),
        (["Q4_1", "Q5_1"], Encoding("q8", "half_pair")),
        (["Q4_1", "Q8_0"], Encoding("q8", "pair")),
        (["Q4_K", "Q6_K"], Encoding("q8", "pair", group=16)),
        (["Q6_K", "Q8_0"], Encoding("q8", "scale", 128, 16)),
        (["F16", "F16"], Encoding("f16")),
        (["F16", "BF16"], Encoding("f32")),
        (["Q8_0", "F16"], Encoding("f32")),
    ],
)
def test_joined_formats_take_the_smallest_encoding_that_holds_all(formats: list[str], expected: Encoding) -> None:
    assert common_encoding(formats) == expected
    assert common_encoding(formats[::-1]) == expected


def test_memory_is_known_before_anything_is_allocated() -> None:
    tensors = [TensorInfo("a", (10, 64), Q4_1, 0, 400), TensorInfo("b", (6, 64), Q4_1, 400, 240)]
    assert describe_weight(tensors).bytes == 640  # 20 bytes a block of 32, as in the file
    assert describe_weight(tensors, "software").bytes == 16 * 2 * (16 + 8)


def test_tensors_that_make_no_matrix_are_refused() -> None:
    wide, narrow = TensorInfo("wide", (2, 64), Q8_0, 0, 136), TensorInfo("narrow", (2, 32), Q8_0, 0, 68)
    with pytest.raises(NotSupported, match=r"wide \[2, 64\], narrow \[2, 32\]"):
        describe_weight([wide, narrow])
    with pytest.raises(NotSupported, match="must be matrices"):
        describe_weight([TensorInfo("vector", (64,), Q8_0, 0, 68)])


@pytest.mark.parametrize(
    ("rows", "limit", "expected"),
    [
        (100, 100 * 32, [(0, 100)]),
        (100, 99 * 32, [(0, 64), (64, 100)]),
        (9, 5 * 32, [(0, 4), (4, 8), (8, 9)]),
        (1, 32, [(0, 1)]),
    ],
)
def test_shards_fill_bindings_with_whole_tiles_or_pairs_of_rows(
    rows: int, limit: int, expected: list[tuple[int, int]]
) -> None:
    info = dataclasses.replace(GPU, limits={"maxStorageBufferBindingSize": limit + 3, "maxBufferSize": 2**28})
    shards = WeightLayout(rows, 32, Encoding("q8", "scale", 128)).shards(info)
    assert [(shard.start, shard.stop) for shard in shards] == expected


def test_a_pair_of_rows_beyond_the_limit_is_refused() -> None:
    info = dataclasses.replace(GPU, limits={"maxStorageBufferBindingSize": 2**28, "maxBufferSize": 60})
    with pytest.raises(NotSupported, match="at most 60 bytes"):
        WeightLayout(2, 32, Encoding("q8", "scale", 128)).shards(info)


@pytest.mark.parametrize(
    ("info", "tokens", "out_features", "variant"),
    [
        (CPU, 1, 576, "software"),
        (CPU, 512, 576, "software"),
        (GPU, 1, 576, "matrix_vector"),
        (GPU, 64, 576, "matrix_vector"),
        (GPU, 65, 576, "tiled"),
        (GPU, 16, 49152, "matrix_vector"),
        (GPU, 17, 49152, "tiled"),
    ],
)
def test_the_variant_follows_the_adapter_and_the_shape(
    info: DeviceInfo, tokens: int, out_features: int, variant: str
) -> None:
    assert choose_linear(info, tokens, out_features=out_features).variant == variant

"""What a model takes of a device, before it is loaded. The figures of the tiny model are counted by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.fit import fit_cache, fit_weights
from pageloom.engine.runner_settings import KvDtype, RunnerSettings
from pageloom.errors import CapacityExceeded, InvalidArgument, NotSupported
from pageloom.model.decoder import ModelDescription, load_model_description
from pageloom.model.source import FileSource
from tests.tiny_model import CONTEXT, HEAD_SIZE, KV_HEADS, LAYERS, vocabulary, write_tiny_model

TOKEN_BYTES = 2 * LAYERS * KV_HEADS * HEAD_SIZE * 2
EMBEDDING_ROW = 64 + 2 * 4  # 64 8-bit codes, and an f32 scale for each 32 of them


def device(binding: int = 2**30) -> DeviceInfo:
    limits = {"maxStorageBufferBindingSize": binding, "maxBufferSize": 2 * binding}
    return DeviceInfo("acme", "plain", "Acme", "browser", "gpu", frozenset(), limits)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    path: Path = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with FileSource(path) as source:
        return asyncio.run(load_model_description(source))


def test_the_largest_matrix_is_named_with_its_bytes_and_the_buffers_that_it_takes(
    model: ModelDescription,
) -> None:
    whole = fit_weights(device(), model)
    assert (whole.largest, whole.largest_shards) == ("token_embd.weight", 1)
    assert whole.largest_bytes == len(vocabulary()) * EMBEDDING_ROW
    assert whole.num_bytes > whole.largest_bytes
    split = fit_weights(device(binding=8192), model)
    assert (split.num_bytes, split.largest_shards) == (whole.num_bytes, -(-len(vocabulary()) * 64 // 8192))


def test_a_matrix_of_which_not_even_two_rows_can_be_bound_does_not_fit(model: ModelDescription) -> None:
    with pytest.raises(NotSupported, match="this device binds at most 100 bytes"):
        fit_weights(device(binding=100), model)


def test_the_pool_and_the_context_follow_from_the_memory(model: ModelDescription) -> None:
    fit = fit_cache(device(), model, RunnerSettings(kv_memory=10 * 16 * TOKEN_BYTES + 1))
    assert (fit.bytes_per_token, fit.num_blocks, fit.num_bytes) == (TOKEN_BYTES, 10, 160 * TOKEN_BYTES)
    assert fit.context_length == 160
    roomy = fit_cache(device(), model, RunnerSettings(kv_memory=2**20))
    assert roomy.context_length == CONTEXT
    assert fit_cache(device(), model, RunnerSettings(kv_memory=2**20, context_length=100)).context_length == 100


def test_memory_for_not_one_page_is_refused_with_the_numbers(model: ModelDescription) -> None:
    with pytest.raises(CapacityExceeded, match=f"takes {16 * TOKEN_BYTES} bytes"):
        fit_cache(device(), model, RunnerSettings(kv_memory=16 * TOKEN_BYTES - 1))
    software = replace(device(), adapter_class="software")
    assert fit_cache(software, model, RunnerSettings()).num_bytes == 2**28


@pytest.mark.parametrize(("dtype", "token_bytes"), [("float32", 2 * TOKEN_BYTES), ("float8e4m3fn", TOKEN_BYTES // 2)])
def test_a_cache_of_other_numbers_takes_other_memory(model: ModelDescription, dtype: KvDtype, token_bytes: int) -> None:
    fit = fit_cache(device(), model, RunnerSettings(kv_memory=10 * 16 * token_bytes, kv_dtype=dtype))
    assert (fit.dtype, fit.bytes_per_token, fit.num_blocks) == (dtype, token_bytes, 10)


def test_an_unknown_type_of_cache_is_refused_with_the_known_ones(model: ModelDescription) -> None:
    settings = RunnerSettings(kv_dtype="int8")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="'int8'; it has to be one of float32, float16, float8e4m3fn"):
        fit_cache(device(), model, settings)

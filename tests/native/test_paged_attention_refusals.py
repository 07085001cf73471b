"""What the PagedAttention operator refuses beyond its contract's own checks: memory, aliases, tiers and sizes."""

from __future__ import annotations

import array
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from operator_kit import CASES, placed

from pageloom.attention.numerics.dtypes import as_tensor
from pageloom.attention.tensors import Tensor
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.operators.operands import DeviceTensor
from pageloom.errors import DeviceError, InvalidArgument, NotSupported, PageloomError

CASE = CASES["paged/rotary/half/ragged"]
Change = Callable[[Device, dict[str, Any]], Mapping[str, Any]]


def on_device(device: Device, inputs: dict[str, Any], name: str) -> DeviceTensor:
    return placed(device, as_tensor(inputs[name]))


def other_cache(device: Device, inputs: dict[str, Any]) -> Mapping[str, Any]:
    return {
        "key_cache": on_device(device, inputs, "key_cache"),
        "key_cache_out": on_device(device, inputs, "key_cache"),
    }


def one_buffer_twice(device: Device, inputs: dict[str, Any]) -> Mapping[str, Any]:
    cache = on_device(device, inputs, "key_cache")
    return {"key_cache": cache, "value_cache": cache}


def short_buffer(device: Device, inputs: dict[str, Any]) -> Mapping[str, Any]:
    query = on_device(device, inputs, "query")
    return {"query": replace(query, shape=(query.shape[0] * 2, query.shape[1]))}


def of_type(dtype: Any) -> Change:
    return lambda device, inputs: {"query": replace(on_device(device, inputs, "query"), dtype=dtype)}


def of_shape(shape: Any) -> Change:
    return lambda device, inputs: {"past_seqlens": replace(on_device(device, inputs, "past_seqlens"), shape=shape)}


def with_bytes(num_bytes: int) -> Change:
    def change(device: Device, inputs: dict[str, Any]) -> Mapping[str, Any]:
        info = as_tensor(inputs["past_seqlens"]).info
        return {"past_seqlens": Tensor(info, memoryview(bytes(num_bytes)))}

    return change


def released_view(device: Device, inputs: dict[str, Any]) -> Mapping[str, Any]:
    view = memoryview(inputs["query"])
    view.release()
    return {"query": view}


def other_byte_order(device: Device, inputs: dict[str, Any]) -> Mapping[str, Any]:
    return {"query": inputs["query"].astype(inputs["query"].dtype.newbyteorder(">"))}


BAD: dict[str, tuple[Change, str, str]] = {
    "a cache output elsewhere": (other_cache, "key_cache_out", "not the buffer of key_cache"),
    "a cache output of host memory": (
        lambda device, inputs: {"key_cache_out": inputs["key_cache"]},
        "key_cache_out",
        "a cache is updated in place",
    ),
    "one buffer for two caches": (one_buffer_twice, "value_cache", "share a buffer"),
    "metadata on the device": (
        lambda device, inputs: {"attention_metadata": placed(device, as_tensor(np.array([1, 1], np.int32)))},
        "attention_metadata",
        "must be in host memory",
    ),
    "a buffer shorter than its tensor": (short_buffer, "query", "its buffer has"),
    "an element type that there is not": (of_type("float17"), "query", "element type float17; allowed are float64"),
    "an element type of another library": (of_type(np.dtype(np.float16)), "query", "element type float16"),
    "an element type of another input": (of_type("float32"), "query", "51200 bytes; its buffer has 25600"),
    "no shape": (of_shape(None), "past_seqlens", "has shape None; a tuple"),
    "a negative size": (of_shape((-3,)), "past_seqlens", r"has shape \(-3,\); a tuple of sizes of at least 0"),
    "a size that is no integer": (of_shape((3.0,)), "past_seqlens", r"has shape \(3.0,\)"),
    "a shape in a list": (of_shape([3]), "past_seqlens", r"has shape \[3\]"),
    "fewer bytes than the tensor": (with_bytes(8), "past_seqlens", "16 bytes; its data has 8"),
    "more bytes than the tensor": (with_bytes(20), "past_seqlens", "16 bytes; its data has 20"),
    "numbers of the other byte order": (other_byte_order, "query", "element type >f2"),
    "a view that was released": (released_view, "query", "is a memoryview .operation forbidden on released"),
    "unsigned integers": (
        lambda device, inputs: {"past_seqlens": array.array("I", [1, 2, 3])},
        "past_seqlens",
        "element type I",
    ),
    "long integers": (
        lambda device, inputs: {"past_seqlens": inputs["past_seqlens"].astype(np.int64)},
        "past_seqlens",
        "element type int64; allowed are int32",
    ),
    "a list": (lambda device, inputs: {"past_seqlens": [1, 2]}, "past_seqlens", "a list"),
    "complex numbers": (
        lambda device, inputs: {"query": inputs["query"].astype(np.complex64)},
        "query",
        "element type complex64",
    ),
    "a view of wide characters": (
        lambda device, inputs: {"query": memoryview(b"ab").cast("c")},
        "query",
        "element type c",
    ),
    "negative metadata": (
        lambda device, inputs: {"attention_metadata": np.array([-1, 0], np.int32)},
        "attention_metadata",
        "holds -1",
    ),
    "lengths past the capacity": (
        lambda device, inputs: {"past_seqlens": inputs["past_seqlens"] + 1000},
        "block_table",
        "maps",
    ),
    "an unknown input": (lambda device, inputs: {"keys": inputs["key"]}, "keys", "there is no input"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_call_is_refused_by_the_name_of_its_input(device: Device, name: str) -> None:
    change, param, message = BAD[name]
    inputs = CASE.inputs()
    call = {**inputs, **change(device, inputs)}
    operator = WebGpuOperators(device).paged_attention(CASE.spec)
    with pytest.raises(InvalidArgument, match=message) as refusal:
        await operator.run(**call)
    assert refusal.value.param == param


async def test_a_tensor_larger_than_a_binding_is_refused_with_its_size(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    inputs = CASE.inputs()
    size = inputs["key_cache"].nbytes
    operator = WebGpuOperators(await limited_device({"maxStorageBufferBindingSize": size - 4})).paged_attention(
        CASE.spec
    )
    with pytest.raises(NotSupported, match=f"key_cache takes {size} bytes, and maxStorageBufferBindingSize") as refusal:
        await operator.run(**inputs)
    assert refusal.value.param == "key_cache"


async def test_a_tier_whose_scratch_no_binding_holds_is_refused_and_passed_over(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    case = CASES["paged/large_batch/300"]
    inputs = case.inputs()
    device = await limited_device({"maxStorageBufferBindingSize": 2**23})
    operator = WebGpuOperators(device).paged_attention(case.spec)
    assert operator.explain(**inputs).tier == "direct-software"
    with pytest.raises(NotSupported, match="tier gather-then-flash cannot run this call: padded query takes"):
        await operator.run(**inputs, tier="gather-then-flash")


@pytest.mark.parametrize("tier", ["direct", "", 5])
async def test_a_tier_that_there_is_not_is_refused_with_those_that_there_are(device: Device, tier: Any) -> None:
    operator = WebGpuOperators(device).paged_attention(CASE.spec)
    with pytest.raises(InvalidArgument, match="; there are direct-gpu, direct-software") as refusal:
        await operator.run(**CASE.inputs(), tier=tier)
    assert refusal.value.param == "tier"


async def test_a_buffer_that_was_freed_or_is_of_another_device_is_an_error_of_the_device(
    device: Device, limited_device: Callable[..., Awaitable[NativeDevice]]
) -> None:
    inputs = CASE.inputs()
    operator = WebGpuOperators(device).paged_attention(CASE.spec)
    freed = on_device(device, inputs, "query")
    freed.buffer.destroy()
    for query in (freed, on_device(await limited_device(), inputs, "query")):
        with pytest.raises(DeviceError, match="the device refuses recording 'PagedAttention'"):
            await operator.run(**{**inputs, "query": query})
    assert set(await operator.run(**inputs)) == {"output", "key_cache_out", "value_cache_out"}


def test_refused_calls_leave_nothing_to_be_told_later(device: Device, capfd: pytest.CaptureFixture[str]) -> None:
    inputs = CASE.inputs()
    operator = WebGpuOperators(device).paged_attention(CASE.spec)
    freed = on_device(device, inputs, "query")
    freed.buffer.destroy()
    for query in (freed, inputs["query"], [1]):
        with suppress(PageloomError):
            operator(**{**inputs, "query": query})
    assert capfd.readouterr().err == ""

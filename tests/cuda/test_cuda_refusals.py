"""Calls that are wrong, and what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pageloom[cuda]'")

from pageloom.attention.group_query.spec import GroupQueryAttentionSpec  # noqa: E402
from pageloom.attention.onnx.spec import OnnxAttentionSpec  # noqa: E402
from pageloom.attention.paged.spec import PagedAttentionSpec  # noqa: E402
from pageloom.attention.scatter.spec import TensorScatterSpec  # noqa: E402
from pageloom.backends.cuda import CudaOperators  # noqa: E402
from pageloom.errors import InvalidArgument, NotSupported, PageloomError  # noqa: E402

Inputs = dict[str, Any]


def paged(device: Any) -> Inputs:
    """Two sequences of one new token, on the device but for the lengths."""
    halves = {"dtype": torch.float16, "device": device}
    return {
        "query": torch.zeros((2, 4 * 16), **halves),
        "key": torch.zeros((2, 2 * 16), **halves),
        "value": torch.zeros((2, 2 * 16), **halves),
        "key_cache": torch.zeros((4, 16, 2, 16), **halves),
        "value_cache": torch.zeros((4, 16, 2, 16), **halves),
        "cumulative_sequence_length": np.array([0, 1, 2], np.int32),
        "past_seqlens": np.array([3, 9], np.int32),
        "block_table": np.array([[0], [1]], np.int32),
    }


def on_device(inputs: Inputs, name: str) -> Inputs:
    return inputs | {name: torch.from_numpy(inputs[name]).to(inputs["query"].device)}


WRONG_PAGED: dict[str, tuple[Callable[[Inputs], Inputs], type[PageloomError], str]] = {
    "no tensor": (lambda i: i | {"query": "text"}, InvalidArgument, "query is a str"),
    "unknown element type": (
        lambda i: i | {"query": i["query"].to(torch.complex64)}, InvalidArgument, "element type torch.complex64",
    ),
    "gaps": (
        lambda i: i | {"key": torch.zeros((2, 64), dtype=torch.float16, device=i["key"].device)[:, ::2]},
        InvalidArgument, "key is not contiguous",
    ),
    "bounds on the device": (
        lambda i: on_device(i | {"attention_metadata": np.array([1, 10], np.int32)}, "attention_metadata")
        if i["query"].device.type == "cuda" else i | {"attention_metadata": np.array([-1, 1], np.int32)},
        InvalidArgument, "attention_metadata",
    ),
    "a past that is negative": (
        lambda i: i | {"past_seqlens": np.array([-1, 9], np.int32)}, InvalidArgument, "sequence 0 is -1",
    ),
    "lengths that fall": (
        lambda i: i | {"cumulative_sequence_length": np.array([0, 3, 2], np.int32)}, InvalidArgument, "from 3 to 2",
    ),
    "a cache given elsewhere": (
        lambda i: i | {"key_cache_out": i["value_cache"]}, InvalidArgument, "not the memory of key_cache",
    ),
    "caches that overlap": (
        lambda i: i | {"value_cache": i["key_cache"]}, InvalidArgument, "share memory",
    ),
    "a tier of another operator": (lambda i: i | {"tier": "flash"}, InvalidArgument, "tier is 'flash'"),
    "an input that there is not": (lambda i: i | {"mask": i["query"]}, InvalidArgument, "there is no input 'mask'"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(WRONG_PAGED))
def test_a_wrong_paged_call_is_refused_in_words(name: str, operators: CudaOperators, device: Any) -> None:
    change, kind, words = WRONG_PAGED[name]
    operator = operators.paged_attention(PagedAttentionSpec(num_heads=4, kv_num_heads=2))
    with pytest.raises(kind, match=words):
        operator(**change(paged(device)))


def test_explain_gives_a_reason_against_every_faster_tier(operators: CudaOperators, device: Any) -> None:
    spec = PagedAttentionSpec(num_heads=4, kv_num_heads=2)
    inputs = paged(device) | {"slot_mapping": np.array([3, 25], np.int32)}
    explained = operators.paged_attention(spec).explain(**inputs)
    assert explained.tier == "triton"
    assert "slot_mapping" in explained.reasons["fused"]
    assert set(explained.reasons) == {"fused", "cudnn"}


def test_a_tier_that_cannot_run_is_refused_with_its_reason(operators: CudaOperators, device: Any) -> None:
    operator = operators.paged_attention(PagedAttentionSpec(num_heads=4, kv_num_heads=2, softcap=2.0))
    with pytest.raises(NotSupported, match="tier cudnn cannot run this call"):
        operator(tier="cudnn", **paged(device))


def test_float32_is_left_to_unfused(operators: CudaOperators, device: Any) -> None:
    inputs = {
        name: value.float() if isinstance(value, torch.Tensor) else value for name, value in paged(device).items()
    }
    explained = operators.paged_attention(PagedAttentionSpec(num_heads=4, kv_num_heads=2)).explain(**inputs)
    assert explained.tier == "unfused"
    assert "not float32" in explained.reasons["triton"]


def test_outputs_are_where_their_inputs_were(operators: CudaOperators, device: Any) -> None:
    inputs = paged(device)
    operator = operators.paged_attention(PagedAttentionSpec(num_heads=4, kv_num_heads=2))
    outputs = operator(**inputs)
    assert isinstance(outputs["output"], torch.Tensor)
    assert outputs["key_cache_out"].data_ptr() == inputs["key_cache"].data_ptr()
    host = {name: value.cpu().numpy() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    assert all(isinstance(output, np.ndarray) for output in operator(**host).values())


def test_a_past_is_appended_to_in_place_only_where_it_is_given_back_whole(
    operators: CudaOperators, device: torch.device
) -> None:
    operator = operators.group_query_attention(GroupQueryAttentionSpec(num_heads=2, kv_num_heads=1))
    halves = {"dtype": torch.float16, "device": device}
    past = {name: torch.zeros((1, 1, 8, 16), **halves) for name in ("past_key", "past_value")}
    inputs = past | {
        "query": torch.ones((1, 1, 32), **halves),
        "key": torch.ones((1, 1, 16), **halves),
        "value": torch.ones((1, 1, 16), **halves),
        "seqlens_k": np.array([4], np.int32),
        "total_sequence_length": np.array(5, np.int32),
    }
    apart = operator(**inputs)
    assert not past["past_key"].any()
    assert apart["present_key"][0, 0, 4].all()
    with pytest.raises(InvalidArgument, match="present_key is not the memory of past_key"):
        operator(**inputs, present_key=past["past_key"])
    together = operator(**inputs, present_key=past["past_key"], present_value=past["past_value"])
    assert together["present_key"].data_ptr() == past["past_key"].data_ptr()
    assert past["past_value"][0, 0, 4].all()


def test_attention_is_told_of_outputs_that_there_are_not(operators: CudaOperators, device: Any) -> None:
    heads = torch.zeros((1, 1, 3, 16), dtype=torch.float16, device=device)
    operator = operators.attention(OnnxAttentionSpec())
    for outputs in (("Y", "Z"), ("present_key",)):
        with pytest.raises(InvalidArgument, match="outputs"):
            operator(Q=heads, K=heads, V=heads, outputs=outputs)


def test_indices_past_the_cache_are_refused_on_the_host_and_write_nothing_on_the_device(
    operators: CudaOperators, device: torch.device
) -> None:
    operator = operators.tensor_scatter(TensorScatterSpec())
    cache = torch.zeros((2, 1, 4, 2), device=device)
    update, indices = torch.ones((2, 1, 2, 2), device=device), np.array([1, 3], np.int64)
    with pytest.raises(InvalidArgument, match="write_indices of row 1 is 3"):
        operator(past_cache=cache, update=update, write_indices=indices)
    if device.type == "cuda":
        indices = torch.from_numpy(indices).to(device)
        present = operator(past_cache=cache, update=update, write_indices=indices)["present_cache"]
        assert (present[0, 0, :, 0].tolist(), present[1].any().item()) == ([0, 1, 1, 0], False)

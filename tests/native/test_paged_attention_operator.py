"""What the PagedAttention operator promises beyond its numbers: replayed calls, tensors in place, and told tiers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest
from operator_kit import CASES, fetched, inputs_of, placed

from pageloom.attention.cases.compare import compare_outputs
from pageloom.attention.cases.paged_case import paged_case
from pageloom.attention.numerics.dtypes import Array, as_array, as_tensor, as_tensors
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.operators.operands import DeviceTensor
from pageloom.backends.webgpu.operators.tiers import Tier

tiers = pytest.mark.parametrize("tier", WebGpuOperators.tiers)
software_tiers = pytest.mark.parametrize("tier", ["direct-software", "gather-then-flash"])


@pytest.fixture(scope="session")
def operators(device: Device) -> WebGpuOperators:
    return WebGpuOperators(device)


STEPS = [((1, 1, 1), (60, 31, 7)), ((1, 1, 1), (61, 32, 8)), ((3, 0, 0), (62, 33, 9)), ((0, 2, 1), (65, 33, 127)),
         ((1, 1, 1), (100, 0, 128)), ((0, 0, 3), (1, 1, 0))]  # fmt: skip


@tiers
@pytest.mark.parametrize("metadata", [(), (3, 160)], ids=["no_bounds", "bounds"])
async def test_a_replay_with_other_lengths_is_right_and_only_submits(
    device: NativeDevice,
    driver: str,
    operators: WebGpuOperators,
    tier: Tier,
    metadata: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if driver == "lavapipe" and tier == "direct-gpu":
        pytest.skip("lavapipe takes most of a minute to compile each gpu program")
    # Every block is mapped and every slot finite, so that any lengths are a call of their own.
    case = paged_case("replay", new=(1, 1, 1), past=(159, 159, 159), extra_columns=0, do_rotary=True, metadata=metadata)
    inputs = case.inputs()
    for name in ("cos_cache", "sin_cache"):
        inputs[name] = np.nan_to_num(inputs[name])
    bounds = inputs.pop("attention_metadata", None)
    on_device = {name: placed(device, as_tensor(array)) for name, array in inputs.items()}
    call = await operators.paged_attention(case.spec).record(tier=tier, attention_metadata=bounds, **on_device)
    assert call.explanation.tier == tier
    for new, past in STEPS:
        inputs["cumulative_sequence_length"][:] = np.cumsum([0, *new])
        inputs["past_seqlens"][:] = past
        for name in ("cumulative_sequence_length", "past_seqlens"):
            device.write(call.inputs[name].buffer, 0, inputs[name])
        with monkeypatch.context() as during:
            for forbidden in ("read", "write", "buffer", "pipeline", "record"):
                during.delattr(type(device), forbidden)
            call.submit()
        outputs = {name: await fetched(device, tensor) for name, tensor in call.outputs.items()}
        verdict = compare_outputs(case.expected(inputs), outputs)
        assert verdict.passed, f"new {new}, past {past}: {verdict.where}"
        inputs |= {name: as_array(outputs[f"{name}_out"]).copy() for name in ("key_cache", "value_cache")}
    call.release()


async def test_tensors_on_the_device_are_used_where_they_lie(device: Device, operators: WebGpuOperators) -> None:
    case = CASES["paged/rotary/half/ragged"]
    operator, host = operators.paged_attention(case.spec), as_tensors(case.inputs())
    expected = await operator.run(**host)
    on_device = {name: placed(device, tensor) for name, tensor in host.items()}
    caches = {f"{name}_out": on_device[name] for name in ("key_cache", "value_cache")}
    found = await operator.run(**on_device, **caches)
    for name, tensor in found.items():
        assert isinstance(tensor, DeviceTensor)
        assert name == "output" or tensor is caches[name]
        assert (await fetched(device, tensor)).data == expected[name].data


def test_arrays_and_buffers_are_taken_and_a_call_may_block(operators: WebGpuOperators) -> None:
    case = CASES["paged/float32/decode_64"]
    arrays = case.inputs()
    views = {name: memoryview(array) for name, array in arrays.items()}
    operator = operators.paged_attention(case.spec)
    outputs = operator(**arrays)
    assert operator(**views)["output"].data == outputs["output"].data
    assert compare_outputs(case.expected(), outputs).passed
    assert as_array(outputs["output"]).shape == (3, 4 * 64)


ORDERS: dict[str, Callable[[Array], object]] = {
    "columns first": np.asfortranarray,
    "every second number": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "backwards": lambda array: array[::-1].copy()[::-1],
    "read only": lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
}


@pytest.mark.parametrize("order", ORDERS)
async def test_arrays_count_by_their_numbers_however_they_lie(operators: WebGpuOperators, order: str) -> None:
    case = CASES["paged/all_together/ragged"]
    arrays = {name: ORDERS[order](array) for name, array in case.inputs().items()}
    verdict = compare_outputs(case.expected(), await operators.paged_attention(case.spec).run(**arrays))
    assert verdict.passed, verdict.where


@software_tiers
async def test_a_softcap_far_above_the_logits_changes_nothing(operators: WebGpuOperators, tier: Tier) -> None:
    case = CASES["paged/decode/edges_nan"]
    for softcap in (1e4, 1e8, 3e38):
        operator = operators.paged_attention(replace(case.spec, softcap=softcap))
        verdict = compare_outputs(case.expected(), await operator.run(**case.inputs(), tier=tier))
        assert verdict.passed, f"softcap {softcap}: {verdict.where}"


@software_tiers
async def test_a_window_wider_than_the_table_hides_nothing(operators: WebGpuOperators, tier: Tier) -> None:
    case = CASES["paged/decode/edges_nan"]
    operator = operators.paged_attention(replace(case.spec, local_window_size=2**40))
    verdict = compare_outputs(case.expected(), await operator.run(**case.inputs(), tier=tier))
    assert verdict.passed, verdict.where


async def test_a_table_may_map_more_positions_than_an_integer_counts(operators: WebGpuOperators) -> None:
    case = paged_case("wide_table", block_size=2**14, spare_blocks=1, extra_columns=2**18, new=(1,), past=(20,),
                      heads=(1, 1), head_size=8)  # fmt: skip
    verdict = compare_outputs(case.expected(), await operators.paged_attention(case.spec).run(**case.inputs()))
    assert verdict.passed, verdict.where


@software_tiers
@pytest.mark.parametrize("v_head_size", [4, 12])
async def test_narrow_values_run_where_they_can(operators: WebGpuOperators, tier: Tier, v_head_size: int) -> None:
    case = paged_case("narrow", heads=(2, 1), head_size=16, new=(3, 1), past=(20, 7), kv_cache_layout="LATENT",
                      v_head_size=v_head_size, scale=0.3, k_element="int8", k_quant_type="PER_TENSOR")  # fmt: skip
    operator, inputs = operators.paged_attention(case.spec), case.inputs()
    reason = f"v_head_size is {v_head_size}; its programs take multiples of 8"
    assert operator.explain(**inputs, tier=tier).reasons["direct-gpu"] == reason
    verdict = compare_outputs(case.expected(), await operator.run(**inputs, tier=tier))
    assert verdict.passed, verdict.where


def test_the_tier_is_explained(device: Device, operators: WebGpuOperators) -> None:
    case = CASES["paged/decode/edges_nan"]
    operator, inputs = operators.paged_attention(case.spec), inputs_of(device, case)
    chosen = operator.explain(**inputs)
    assert (chosen.tier, list(chosen.reasons)) == ("direct-software", ["direct-gpu"])
    assert "computes on a CPU" in chosen.reasons["direct-gpu"]
    forced = operator.explain(**inputs, tier="gather-then-flash")
    assert forced.reasons["direct-software"] == "tier gather-then-flash was asked for"


def test_the_limit_that_rules_a_tier_out_is_named(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    device = asyncio.run(limited_device({"maxComputeInvocationsPerWorkgroup": 16}))
    case = CASES["paged/decode/edges_nan"]
    explained = WebGpuOperators(device).paged_attention(case.spec).explain(**inputs_of(device, case))
    assert explained.reasons["direct-gpu"].startswith("maxComputeInvocationsPerWorkgroup is 16, and ")

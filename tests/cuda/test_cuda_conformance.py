"""Cases of the matrix on every tier that runs them here: on a GPU the quick ones, in the interpreter a few."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pageloom[cuda]'")

from pageloom.attention.cases.matrix import all_cases
from pageloom.backends.cuda import CudaOperators
from pageloom.conformance.run_cuda import TIERS_OF, CudaCaseRunner

INTERPRETED: dict[str, tuple[str, ...]] = {
    "paged/device_values/unmapped_pages": ("triton", "unfused"),
    "paged/device_values/invalid_past_decode": ("triton", "unfused"),
    "paged/device_values/tokens_of_no_sequence": ("triton", "unfused"),
    "paged/slot_mapping/holes_decode": ("triton", "unfused"),
    "paged/rotary/half_packed/decode": ("fused", "triton", "unfused"),
    "paged/qk_norm/1": ("fused", "triton", "unfused"),
    "paged/window/size_17": ("triton", "unfused"),
    "paged/softcap/window_sink": ("triton", "unfused"),
    "paged/int8/per_channel/decode": ("fused", "triton", "unfused"),
    "paged/int4/per_channel/decode": ("fused", "triton", "unfused"),
    "paged/int4/huge_scales": ("triton", "unfused"),
    "paged/latent/int8_per_channel": ("triton", "unfused"),
    "paged/zero_tokens/none_at_all": ("triton", "unfused"),
    "group_query/half/float16/decode/int8_per_tensor": ("fused", "triton", "unfused"),
    "group_query/half/float16/decode/interleaved_norm": ("fused", "triton", "unfused"),
    "group_query/half/float16/chunks": ("triton", "unfused"),
    "group_query/half/float16/shared": ("triton", "unfused"),
    "group_query/sliding_cache/chunk_9": ("unfused",),
    "group_query/bias/2_1": ("unfused",),
    "onnx/half/float16/external_heads_first_nan/empty": ("triton", "unfused"),
    "onnx/half/float16/external_flat_nan/more_rows_than_keys": ("triton", "unfused"),
    "onnx/half/float16/external_groups/14_2": ("triton", "unfused"),
    "onnx/mask/bool_row_hidden_causal": ("unfused",),
    "scatter/circular/float32": ("unfused",),
}
"""Cases, and the tiers that must run them."""
CASES = {case.name: case for case in all_cases()}


@pytest.mark.parametrize(("name", "tier"), [(name, tier) for name, tiers in INTERPRETED.items() for tier in tiers])
def test_a_case_comes_out_within_its_budget_on_the_tier_asked_for(name: str, tier: str, device: Any) -> None:
    report = CudaCaseRunner(CudaOperators(device), device, tier).run(CASES[name].vector())
    assert (report.outcome, report.tier) == ("passed", tier), report.detail


@pytest.mark.parametrize("operator", sorted(TIERS_OF))
@pytest.mark.parametrize("choice", ["own choice", "each tier"])
def test_every_quick_case_comes_out_within_its_budget(operator: str, choice: str, gpu: Any) -> None:
    tiers: tuple[Any, ...] = (None,) if choice == "own choice" else TIERS_OF[operator]  # type: ignore[index]
    operators = CudaOperators(gpu)
    runners = [CudaCaseRunner(operators, gpu, tier) for tier in tiers]
    failed = []
    for case in all_cases(quick=True):
        if case.operator == operator and not fnmatchcase(case.name, "*/long/*"):
            vector = case.vector()
            reports = [runner.run(vector) for runner in runners]
            failed += [f"{one.name} by {one.asked}: {one.detail}" for one in reports if one.outcome == "failed"]
    assert failed == []

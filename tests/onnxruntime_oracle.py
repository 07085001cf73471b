"""One operator run by ONNX Runtime's CPU provider, whose kernels share nothing with this project."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime

from pageloom.attention.cases.case import Case, Inputs
from pageloom.attention.cases.compare import Expected
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.numerics.dtypes import NUMPY_DTYPES
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.conformance.onnx_model import make_model

# What ONNX Runtime 1.32's CPU provider refuses: its message has this in it.
REFUSALS = {
    "group_query/bias/spare_columns": "must be equal to total_sequence_length",
    "onnx/negative_scale": "scale must be greater than 0",
}
REFUSED_NEEDS = {
    "bfloat16": "NOT_IMPLEMENTED|can't be converted",
    "qk_norm": "not supported",
    "mixed_cache": "INVALID_GRAPH|Type Error",
}


def refusal(case: Case) -> str | None:
    """A part of the message with which ONNX Runtime refuses `case`, or None where it runs it."""
    if "short" in case.name:
        return "inconsistent total_sequence_length"
    for need, message in REFUSED_NEEDS.items():
        if need in case.needs:
            return message
    return REFUSALS.get(case.name)


def run_case(case: Case, inputs: Inputs, expected: dict[str, Expected]) -> dict[str, np.ndarray]:
    """The outputs of `case` that are `expected`; raises what ONNX Runtime raises where it refuses."""
    result_dtype = next(iter(inputs.values())).dtype
    dtypes = {name: NUMPY_DTYPES[want.values.info.dtype] for name, want in expected.items()}
    outputs = {name: result_dtype if dtype == np.float64 else dtype for name, dtype in dtypes.items()}
    return run_node(case.operator, case.spec, inputs, outputs)


def run_node(operator: str, spec: Any, inputs: Inputs, outputs: dict[str, np.dtype]) -> dict[str, np.ndarray]:
    """The `outputs` (name -> element type) of one node."""
    model = make_model(operator, spec, inputs, outputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return dict(zip(outputs, session.run(list(outputs), inputs), strict=True))


def run_paged_case(case: Case, inputs: Inputs) -> np.ndarray:
    """The output of a PagedAttention case, each sequence run by itself as a GroupQueryAttention over its own past."""
    spec = case.spec
    bounds = inputs["cumulative_sequence_length"].tolist()
    heads = spec.num_heads + (0 if "key" in inputs else 2 * spec.kv_num_heads)
    head_size = inputs["query"].shape[1] // heads
    output = np.zeros((len(inputs["query"]), spec.num_heads * head_size), inputs["query"].dtype)
    for row, past in enumerate(inputs["past_seqlens"].tolist()):
        tokens = slice(bounds[row], bounds[row + 1])
        if tokens.start < tokens.stop:
            node = _sequence_inputs(inputs, row, tokens, past)
            dtypes = {"output": output.dtype, **{f"present_{n}": node[f"past_{n}"].dtype for n in ("key", "value")}}
            output[tokens] = run_node("group_query_attention", _sequence_spec(spec), node, dtypes)["output"][0]
    return output


def _sequence_inputs(inputs: Inputs, row: int, tokens: slice, past: int) -> Inputs:
    total = past + tokens.stop - tokens.start
    node = {name: inputs[name][None, tokens] for name in ("query", "key", "value") if name in inputs}
    node |= {"seqlens_k": np.array([total - 1], np.int32), "total_sequence_length": np.array(total, np.int32)}
    block_size = inputs["key_cache"].shape[1]
    positions = np.arange(past)
    blocks = inputs["block_table"][row, positions // block_size]
    for name in ("key", "value"):
        rows = inputs[f"{name}_cache"][blocks, positions % block_size].copy()
        rows[blocks < 0] = 0
        node[f"past_{name}"] = rows.swapaxes(0, 1)[None].copy()
    optional = ("cos_cache", "sin_cache", "head_sink", "k_scale", "v_scale")
    return node | {name: inputs[name] for name in optional if name in inputs}


def _sequence_spec(spec: PagedAttentionSpec) -> GroupQueryAttentionSpec:
    bits = {"NONE": 0}.get(spec.k_quant_type, 4 if spec.k_cache_dtype == "int4" else 8)
    return GroupQueryAttentionSpec(
        num_heads=spec.num_heads,
        kv_num_heads=spec.kv_num_heads,
        scale=spec.scale,
        softcap=spec.softcap,
        local_window_size=spec.local_window_size,
        causal=spec.is_causal,
        do_rotary=spec.do_rotary,
        rotary_interleaved=spec.rotary_interleaved,
        smooth_softmax=int(spec.use_smooth_softmax),
        k_quant_type=spec.k_quant_type,
        v_quant_type=spec.v_quant_type,
        kv_cache_bit_width=bits,
    )

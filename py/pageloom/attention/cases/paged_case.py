"""One PagedAttention case from its parameters: what a line of the matrix is made with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from pageloom.attention.cases.case import Case, Inputs
from pageloom.attention.cases.paged_expected import expected_outputs
from pageloom.attention.cases.paged_inputs import PagedProblem, make_inputs
from pageloom.attention.paged.spec import PagedAttentionSpec

Adjust = Callable[[Inputs], None]
_SPEC_FIELDS = {field.name for field in fields(PagedAttentionSpec)}


def paged_case(
    name: str,
    *,
    heads: tuple[int, int] = (4, 2),
    head_size: int = 64,
    quick: bool = False,
    guards: str = "",
    needs: frozenset[str] = frozenset(),
    adjust: Adjust | None = None,
    **parameters: Any,
) -> Case:
    """The case `paged/name`. `parameters` are fields of the spec or of `PagedProblem`; `adjust` edits the
    inputs last."""
    attributes = {key: parameters.pop(key) for key in list(parameters) if key in _SPEC_FIELDS}
    spec = PagedAttentionSpec(num_heads=heads[0], kv_num_heads=heads[1], **attributes)
    if spec.do_rotary:
        parameters.setdefault("rotary_dim", head_size)
    problem = PagedProblem(spec=spec, head_size=head_size, **parameters)

    def build(rng: np.random.Generator) -> Inputs:
        inputs = make_inputs(problem, rng)
        if adjust is not None:
            adjust(inputs)
        return inputs

    return Case(
        name=f"paged/{name}",
        operator="paged_attention",
        spec=spec,
        make_inputs=build,
        expect=lambda inputs: expected_outputs(problem, inputs),
        needs=needs | _needs(problem),
        quick=quick,
        guards=guards,
    )


def members(inputs: Inputs) -> Iterator[tuple[slice, Inputs]]:
    """Each sequence of a PagedAttention call by itself, with the rows of the batch's output that are its own.

    The caches are the batch's and are copied, since the operator writes to them.
    """
    bounds = inputs["cumulative_sequence_length"]
    for row in range(len(inputs["past_seqlens"])):
        tokens = slice(int(bounds[row]), int(bounds[row + 1]))
        alone = {name: array.copy() for name, array in inputs.items()}
        for name in ("query", "key", "value", "slot_mapping"):
            if name in inputs:
                alone[name] = inputs[name][tokens]
        alone["cumulative_sequence_length"] = np.array([0, tokens.stop - tokens.start], np.int32)
        alone |= {name: inputs[name][row : row + 1] for name in ("past_seqlens", "block_table")}
        yield tokens, alone


def _needs(problem: PagedProblem) -> frozenset[str]:
    spec = problem.spec
    elements = {problem.storage(side).element for side in ("k", "v") if problem.storage(side).quantized}
    present = {
        "softcap": spec.softcap > 0,
        "window": spec.windowed,
        "noncausal": not spec.is_causal,
        "rotary": spec.do_rotary,
        "qk_norm": problem.qk_norm,
        "sink": problem.head_sink or spec.use_smooth_softmax,
        "slot_mapping": problem.slots != "derived",
        "latent": spec.latent,
        "per_channel": "PER_CHANNEL" in (spec.k_quant_type, spec.v_quant_type),
        problem.dtype: True,
    }
    return frozenset(name for name, used in present.items() if used) | {f"{element}_cache" for element in elements}

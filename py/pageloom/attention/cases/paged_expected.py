"""What a PagedAttention case must give, from the reference and the error budget."""

from __future__ import annotations

import numpy as np

from pageloom.attention.cases.case import Inputs, expected_cache, expected_numbers
from pageloom.attention.cases.compare import Expected
from pageloom.attention.cases.paged_inputs import PagedProblem
from pageloom.attention.numerics.dtypes import to_float64
from pageloom.attention.numerics.error_budget import (
    attention_errors,
    log_sum_exp_budget,
    output_budget,
    stored_key_budget,
)
from pageloom.attention.paged.reference import PagedAttentionResult, paged_attention


def expected_outputs(problem: PagedProblem, inputs: Inputs) -> dict[str, Expected]:
    """output, the caches, and log_sum_exp where a backend offers it.

    Slots that nothing was stored to must keep their bits. K that was computed may be off by a rounding; a code of a
    quantised cache may not, the inputs having been chosen so.
    """
    spec = problem.spec
    result = paged_attention(spec, inputs)
    computed_keys = spec.do_rotary or problem.qk_norm
    errors = attention_errors(
        problem.dtype,
        head_size=problem.head_size,
        num_keys=result.num_keys,
        logit_mass=result.logit_mass,
        logit_size=result.logit_size,
        softcap=spec.softcap,
        operand_roundings=3 if computed_keys else 0,
    )
    outputs = {
        "output": expected_numbers(result.output, output_budget(problem.dtype, errors, result.mass, result.output)),
        "key_cache_out": _key_cache(problem, result, computed_keys),
        "log_sum_exp": expected_numbers(
            result.log_sum_exp, log_sum_exp_budget(errors, result.log_sum_exp).max(axis=-1, initial=0.0), optional=True
        ),
    }
    if result.value_cache is not None:
        outputs["value_cache_out"] = expected_cache(result.value_cache, np.zeros(()))
    return outputs


def _key_cache(problem: PagedProblem, result: PagedAttentionResult, computed: bool) -> Expected:
    if not computed or problem.storage("k").quantized:
        return expected_cache(result.key_cache, np.zeros(()))
    budget = np.zeros(result.key_cache.shape[:-1])
    written = to_float64(result.key_cache[result.written])
    budget[result.written] = stored_key_budget(problem.dtype, written, problem.head_size)
    return expected_cache(result.key_cache, budget)

"""How far a correct implementation may be from the float64 reference, derived from the data and the element types.

The model: operands and results are stored in the operator's type T (unit roundoff u); everything between is float32
(unit roundoff e), its sums in any order, which costs at most n * e relative to the sum of magnitudes for n terms
(Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1). exp, log, tanh and division are as accurate as
WGSL demands. Q may be rounded to T after norm and rotary, and the weights before they meet V.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pageloom.attention.numerics.dtypes import SMALLEST_NORMAL, UNIT_ROUNDOFF, Float64
from pageloom.attention.tensors import DType

E = UNIT_ROUNDOFF["float32"]
EXP_ULPS, EXP_ULPS_PER_UNIT = 3, 2
TANH_ERROR = 1e-5
LOG_ERROR = 2.0**-21
ROUNDINGS_OF_A_STEP = 8
"""float32 roundings that an element meets beside its sum: scaling, rescaling of a running sum, the division."""


@dataclass(frozen=True, slots=True)
class AttentionErrors:
    """Bounds for each row: of its logits (absolute) and of its weights (relative)."""

    logit: Float64
    weight: Float64


def attention_errors(
    dtype: DType,
    *,
    head_size: int,
    num_keys: Float64,
    logit_mass: Float64,
    logit_size: Float64,
    softcap: float = 0.0,
    operand_roundings: int = 0,
) -> AttentionErrors:
    """Bounds for rows that see `num_keys` keys; see `Attended` for the masses.

    `operand_roundings` counts the roundings to T of Q and K that the reference does not do or may do at another point:
    one of Q, and two of K (which may round to the neighbour), where norm or rotary computed them.
    """
    relative = operand_roundings * UNIT_ROUNDOFF[dtype] + (head_size + ROUNDINGS_OF_A_STEP) * E
    logit = logit_mass * relative + 3 * E * logit_size + softcap * TANH_ERROR
    # The mean distance of a logit from the largest, by weight, is at most the entropy and so at most log(num_keys).
    exponential = 2 * E * (EXP_ULPS + EXP_ULPS_PER_UNIT * np.log(np.maximum(num_keys, 1)))
    sums = 2 * (num_keys + ROUNDINGS_OF_A_STEP) * E
    return AttentionErrors(logit=logit, weight=np.expm1(2 * logit) + exponential + sums)


def output_budget(dtype: DType, errors: AttentionErrors, mass: Float64, output: Float64) -> Float64:
    """Absolute bound for every element of a row `output[..., :]`; 0 for rows that must be exactly 0."""
    u = UNIT_ROUNDOFF[dtype]
    size = np.abs(output).max(axis=-1)
    flushed = 2 * SMALLEST_NORMAL[dtype]
    budget: Float64 = mass * (errors.weight + u) + size * u + flushed
    return np.where(mass > 0, budget, 0.0)


def log_sum_exp_budget(errors: AttentionErrors, log_sum_exp: Float64) -> Float64:
    """Absolute bound of a float32 logarithm of the denominator; 0 where there is none."""
    finite = np.isfinite(log_sum_exp)
    size = np.abs(np.where(finite, log_sum_exp, 0.0))
    return np.where(finite, errors.logit + errors.weight + LOG_ERROR + 4 * E * size, 0.0)


def stored_key_budget(dtype: DType, keys: Float64, head_size: int) -> Float64:
    """Absolute bound for rows of K that norm or rotary computed and the cache rounded to T: one unit in the last place,
    and the float32 arithmetic before it."""
    size = np.abs(keys).max(axis=-1)
    budget: Float64 = size * (2 * UNIT_ROUNDOFF[dtype] + (head_size + ROUNDINGS_OF_A_STEP) * E) + SMALLEST_NORMAL[dtype]
    return budget

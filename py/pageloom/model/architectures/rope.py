"""Rotary frequencies from metadata: plain, linear and YaRN scaling, and per-pair factors (Llama 3)."""

from __future__ import annotations

import math

from pageloom.errors import BadModelFile, NotSupported
from pageloom.model.architectures.hyperparameters import Hyperparameters
from pageloom.model.architectures.weights import Weights
from pageloom.model.layer_ops import Rope
from pageloom.model.metadata import Metadata

FACTORS = "rope_freqs.weight"
SMALLEST_THETA = 1.01
"""Frequencies fall from pair to pair, which YaRN takes for granted; known models begin at ten thousand."""


async def describe_rope(
    metadata: Metadata, sizes: Hyperparameters, weights: Weights, *, interleaved: bool, default_theta: float = 1e4
) -> Rope:
    """The rotary embedding that the file asks for. Raises `NotSupported` for a scaling that is not known."""
    prefix = f"{sizes.architecture}.rope"
    dim = metadata.integer(f"{prefix}.dimension_count", sizes.head_size, minimum=2, maximum=sizes.head_size)
    if dim % 2:
        raise BadModelFile(f"{prefix}.dimension_count is {dim}; it must be even", param=f"{prefix}.dimension_count")
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in weights:
            raise NotSupported("longrope scaling is not supported", param=name)
    theta = metadata.number(f"{prefix}.freq_base", default_theta, minimum=SMALLEST_THETA)
    frequencies = plain_frequencies(theta, dim)
    scaling = metadata.text(f"{prefix}.scaling.type", "none")
    attention_factor = 1.0
    if scaling == "linear":
        factor = metadata.number(f"{prefix}.scaling.factor", 1.0)
        frequencies = [frequency / factor for frequency in frequencies]
    elif scaling == "yarn":
        frequencies, attention_factor = _yarn(metadata, prefix, theta, frequencies)
    elif scaling != "none":
        raise NotSupported(f"the rope scaling {scaling!r} is not supported", param=f"{prefix}.scaling.type")
    if FACTORS in weights:
        factors = await weights.values(FACTORS, dim // 2)
        if not all(0 < factor < math.inf for factor in factors):
            raise BadModelFile(f"{FACTORS} holds a factor that is not positive and finite", param=FACTORS)
        frequencies = [frequency / factor for frequency, factor in zip(frequencies, factors, strict=True)]
    return Rope(dim, interleaved, tuple(frequencies), attention_factor)


def plain_frequencies(theta: float, dim: int) -> list[float]:
    """theta ** (-2i / dim) for pair i of dim / 2."""
    return [theta ** (-2 * pair / dim) for pair in range(dim // 2)]


def _yarn(metadata: Metadata, prefix: str, theta: float, plain: list[float]) -> tuple[list[float], float]:
    """YaRN (arXiv 2309.00071, section 3.2): fast pairs keep their frequency, slow ones are interpolated by the factor,
    a linear ramp over the pair index lies between."""
    dim = 2 * len(plain)
    factor = metadata.number(f"{prefix}.scaling.factor")
    original = metadata.integer(f"{prefix}.scaling.original_context_length", minimum=1)
    beta_fast = metadata.number(f"{prefix}.scaling.yarn_beta_fast", 32.0)
    beta_slow = metadata.number(f"{prefix}.scaling.yarn_beta_slow", 1.0)

    def pair_with_rotations(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_with_rotations(beta_fast)), 0)
    high = min(math.ceil(pair_with_rotations(beta_slow)), dim - 1)
    width = max(high - low, 0.001)  # low == high is a step, not a division by zero
    frequencies = []
    for pair, frequency in enumerate(plain):
        interpolated = min(max((pair - low) / width, 0.0), 1.0)
        frequencies.append(frequency / factor * interpolated + frequency * (1 - interpolated))
    attention_factor = metadata.number(f"{prefix}.scaling.attn_factor", 1.0)
    return frequencies, attention_factor * (0.1 * math.log(factor) + 1 if factor > 1 else 1.0)

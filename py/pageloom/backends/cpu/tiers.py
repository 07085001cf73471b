"""The tiers of the CPU backend, and the words for what the kernels chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pageloom.attention.tiers import Explanation
from pageloom.errors import NotSupported

CompiledTier = Literal["flash-decoding", "flash", "naive"]
Tier = Literal[CompiledTier, "reference"]
COMPILED_TIERS: tuple[CompiledTier, ...] = ("flash-decoding", "flash", "naive")
TIERS: tuple[Tier, ...] = (*COMPILED_TIERS, "reference")
"""Fastest first.

- flash-decoding: the keys of a sequence are split over threads, and the parts merged;
- flash: tiles of queries and keys that stay in the cache, online softmax, no matrix of scores;
- naive: a whole row of scores at a time, which can be captured;
- reference: numpy in double precision; needs nothing compiled, and takes every element type.
"""

KernelPath = Literal["flash_decoding", "flash", "naive"]
_PATHS: dict[CompiledTier, KernelPath] = {"flash-decoding": "flash_decoding", "flash": "flash", "naive": "naive"}


@dataclass(frozen=True, slots=True)
class CpuExplanation(Explanation[Tier]):
    """`level` is the instruction set that runs, and `level_reasons` says why no faster one, and none that this machine
    lacks, does; None and empty where nothing compiled attends."""

    level: str | None = None
    level_reasons: Mapping[str, str] = field(default_factory=dict)


def kernel_path(tier: CompiledTier | None) -> KernelPath | None:
    """The kernels' own word for a tier."""
    return None if tier is None else _PATHS[tier]


def explain_plan(
    plan: Mapping[str, Any], against: Mapping[Tier, str], level_reasons: Mapping[str, str]
) -> CpuExplanation:
    """What the kernels do, from their own plan of a call; `against` are the reasons that hold whatever they choose."""
    chosen = next(tier for tier, path in _PATHS.items() if path == plan["path"])
    reasons: dict[Tier, str] = {}
    for tier in TIERS[: TIERS.index(chosen)]:
        own = _why_not_split(plan) if tier == "flash-decoding" else "the kernels found it no faster here"
        reasons[tier] = against.get(tier, own)
    return CpuExplanation(chosen, reasons, plan["level"], level_reasons)


def require_path(plan: Mapping[str, Any], tier: Tier) -> None:
    """Raise `NotSupported` where the kernels cannot do a call as `tier`: a single key cannot be split."""
    explained = explain_plan(plan, {}, {})
    if explained.tier != tier:
        raise NotSupported(
            f"tier {tier} cannot run this call: {explained.reasons.get(tier, f'the kernels take {explained.tier}')}",
            param="tier",
        )


def _why_not_split(plan: Mapping[str, Any]) -> str:
    if plan["threads"] == 1:
        return "one thread runs the call, or there are too few keys, so there is nothing to split"
    return f"{plan['tasks']} tasks occupy {plan['threads']} threads without splitting the keys"

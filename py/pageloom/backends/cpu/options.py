"""Options of the CPU backend, each also an environment variable."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pageloom.attention.validation import require, require_int, require_one_of
from pageloom.backends.cpu.tiers import TIERS, Tier
from pageloom.errors import InvalidArgument

Level = Literal["scalar", "neon", "avx2", "avx512", "avx512_vnni", "avx512_amx"]
LEVELS: tuple[Level, ...] = ("scalar", "neon", "avx2", "avx512", "avx512_vnni", "avx512_amx")
"""Instruction sets that the kernels are compiled for, slowest first."""

Approximation = Literal["int16", "int8-query"]
APPROXIMATIONS: tuple[Approximation, ...] = ("int16", "int8-query")
"""Products that are not those of float32, each to be asked for by its name.

- int16: queries and weights of a prefill over int8 and int4 caches are rounded to 16 bits in place of 24 (AMX);
- int8-query: each row of queries is rounded to int8 for its products with int8 keys (VNNI).
"""

ENVIRONMENT = {
    "threads": "PAGELOOM_CPU_THREADS",
    "pin": "PAGELOOM_CPU_PIN",
    "level": "PAGELOOM_CPU_LEVEL",
    "tier": "PAGELOOM_CPU_TIER",
    "approximate": "PAGELOOM_CPU_APPROXIMATE",
}
"""The variable that stands for an option that was not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOptions:
    """How the CPU backend runs.

    - `threads`: the most that a call uses, the caller's included; None is one for each core that the process may use.
      The pool is the process's, and as large as the largest number asked for.
    - `pin`: whether each thread of the pool stays on a core of its own; the last asked for holds.
    - `level`: the instruction set; None is the best of this CPU.
    - `tier`: of every call that names none; None is the fastest that can.
    - `approximate`: the products that may be approximate, see `APPROXIMATIONS`; None is none.

    Raises `InvalidArgument` naming the option.
    """

    threads: int | None = None
    pin: bool = False
    level: Level | None = None
    tier: Tier | None = None
    approximate: Approximation | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            require_int("threads", self.threads, 1)
        if self.level is not None:
            require_one_of("level", self.level, LEVELS)
        if self.tier is not None:
            require_one_of("tier", self.tier, TIERS)
        if self.approximate is not None:
            require_one_of("approximate", self.approximate, APPROXIMATIONS)

    @property
    def num_threads(self) -> int:
        """The most threads that a call uses."""
        return self.threads or usable_cores()

    @classmethod
    def of(
        cls,
        *,
        threads: int | None = None,
        pin: bool | None = None,
        level: str | None = None,
        tier: str | None = None,
        approximate: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> CpuOptions:
        """The options given; for one that is None, what its environment variable says, or its default."""
        given: dict[str, Any] = {
            "threads": threads, "pin": pin, "level": level, "tier": tier, "approximate": approximate
        }  # fmt: skip
        for name, read in _READERS.items():
            text = environment.get(ENVIRONMENT[name], "")
            if given[name] is None and text:
                given[name] = read(ENVIRONMENT[name], text)
        return cls(**{name: value for name, value in given.items() if value is not None})


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _name(variable: str, text: str) -> str:
    return text


def _integer(variable: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidArgument(f"{variable} is {text!r}; a whole number is allowed", param=variable) from error


def _flag(variable: str, text: str) -> bool:
    require(text in ("0", "1"), f"{variable} is {text!r}; 0 or 1 is allowed", variable)
    return text == "1"


_READERS: dict[str, Callable[[str, str], Any]] = {
    "threads": _integer,
    "pin": _flag,
    "level": _name,
    "tier": _name,
    "approximate": _name,
}

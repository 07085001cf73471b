"""What this CPU offers to the backend, and why not more."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pageloom.backends.cpu.context import why_no_kernels
from pageloom.backends.cpu.options import usable_cores


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """`levels` are the instruction sets that run, slowest first, `unavailable` the others with their reasons; both are
    empty, and the cache sizes (bytes) 0, where `why_no_kernels` says why there are no compiled kernels."""

    name: str
    cores: int
    levels: tuple[str, ...]
    unavailable: Mapping[str, str]
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    why_no_kernels: str | None

    def describe(self) -> str:
        """One line."""
        runs = f"kernels up to {self.levels[-1]}" if self.levels else "no compiled kernels"
        return f"{self.name}, {self.cores} cores, {runs}"

    def to_fields(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def cpu_facts() -> CpuFacts:
    """The facts of this machine."""
    missing = why_no_kernels()
    if missing is not None:
        return CpuFacts(_name(), usable_cores(), (), {}, 0, 0, 0, missing)
    import pageloom_cpu  # noqa: PLC0415 - optional

    info = pageloom_cpu.info()
    return CpuFacts(
        _name(),
        usable_cores(),
        tuple(info["levels"]),
        {str(level): reason for level, reason in info["unavailable"].items()},
        info["l1d_bytes"],
        info["l2_bytes"],
        info["l3_bytes"],
        None,
    )


def _name() -> str:
    """The CPU's name for itself, which says nothing of what it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()

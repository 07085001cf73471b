"""What the operators of one `CpuOperators` share: options, and whether the compiled kernels are installed."""

from __future__ import annotations

from typing import Any

from pageloom.backends.cpu.options import Approximation, CpuOptions, Level
from pageloom.errors import NotSupported

INSTALL = (
    "pip install pageloom-cpu, or ./py/pageloom-cpu in a checkout; it needs a compiler for C++17 and Python's headers "
    "(on Debian apt-get install g++ python3-dev)"
)

_KERNEL_WORDS: dict[Approximation, str] = {"int16": "int16", "int8-query": "int8_query"}


class CpuContext:
    """`level` is the instruction set that runs; None without kernels, and `why_no_kernels` then says why.
    `kernel_options` are keywords of every bound kernel, `attention_options` those of attention.

    Raises `NotSupported` for an instruction set, or approximate products, that this CPU, this build, or a machine
    without the kernels lacks.
    """

    def __init__(self, options: CpuOptions) -> None:
        self.options = options
        self.why_no_kernels = why_no_kernels()
        self.level = _level(options, self.why_no_kernels)
        self.why_not_levels = _why_not_levels(self.level)
        self.kernel_options: dict[str, Any] = {"level": self.level, "threads": options.num_threads}
        self.attention_options = self.kernel_options | _approximation(options, self.level, self.why_no_kernels)


def _why_not_levels(level: Level | None) -> dict[str, str]:
    """The reason against each other instruction set that is faster or that this machine lacks."""
    if level is None:
        return {}
    import pageloom_cpu  # noqa: PLC0415 - optional

    available = pageloom_cpu.levels()
    faster = available[available.index(level) + 1 :]
    reasons = dict.fromkeys(map(str, faster), f"level {level} was asked for")
    return reasons | {str(other): reason for other, reason in pageloom_cpu.unavailable_levels().items()}


def _approximation(options: CpuOptions, level: Level | None, missing: str | None) -> dict[str, str]:
    """The keyword that asks for approximate products; raises `NotSupported` where `level` has none of that name."""
    if options.approximate is None:
        return {}
    if missing is not None:
        raise NotSupported(f"approximate {options.approximate} cannot be used: {missing}", param="approximate")
    import numpy as np  # noqa: PLC0415 - the kernels need it
    import pageloom_cpu  # noqa: PLC0415 - optional

    asked = {"approximation": _KERNEL_WORDS[options.approximate]}
    row, codes, scale = np.zeros((1, 1, 1, 64), np.float32), np.zeros((1, 1, 1, 64), np.int8), np.ones(1, np.float32)
    scales = {"k_scale": scale, "v_scale": scale}
    one = pageloom_cpu.Sequences(1, 1, total=1)
    try:
        pageloom_cpu.Attention(one, row, row.copy(), codes, codes, scale=1.0, level=level, **scales, **asked)  # type: ignore[arg-type]
    except ValueError as error:
        reason = f"approximate {options.approximate} cannot be used on level {level}: {error}"
        raise NotSupported(reason, param="approximate") from error
    return asked


def why_no_kernels() -> str | None:
    """The reason why `pageloom_cpu` cannot be imported, or None."""
    try:
        import pageloom_cpu  # noqa: F401, PLC0415 - optional
    except ImportError as error:
        return f"the compiled kernels are not installed ({error}): {INSTALL}"
    return None


def _level(options: CpuOptions, missing: str | None) -> Level | None:
    """The instruction set of the kernels, whose pool of threads is made large enough; None without kernels."""
    if missing is not None:
        if options.level is not None:
            raise NotSupported(f"level {options.level} cannot be used: {missing}", param="level")
        return None
    import pageloom_cpu  # noqa: PLC0415 - optional

    available = pageloom_cpu.levels()
    if options.level is not None and options.level not in available:
        reason = pageloom_cpu.unavailable_levels().get(options.level, "this build has no kernels for it")
        raise NotSupported(
            f"level {options.level} cannot be used: {reason}; there are {', '.join(available)}", param="level"
        )
    pool = pageloom_cpu.info()
    if options.num_threads > pool["threads"] or options.pin != pool["pinned"]:
        pageloom_cpu.set_threads(max(options.num_threads, pool["threads"]), pin=options.pin)
    return options.level or available[-1]

"""Programs: WGSL templates with their parameters, and dispatches of them before they are compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pageloom.backends.webgpu.device import Buffer, Pipeline

ParameterValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class ProgramKey:
    """A template's path below `wgsl/` and every parameter it takes, and nothing else; sorted by name."""

    template: str
    parameters: tuple[tuple[str, ParameterValue], ...]

    @classmethod
    def of(cls, template: str, **parameters: ParameterValue) -> ProgramKey:
        return cls(template, tuple(sorted(parameters.items())))

    def __str__(self) -> str:
        """The label of the program. It tells 1 from 1.0 and from True, which are equal in Python."""
        return f"{self.template}({', '.join(f'{name}={value!r}' for name, value in self.parameters)})"


@dataclass(frozen=True, slots=True)
class PlannedDispatch:
    """A dispatch before its program is compiled. The grid is an upper bound, which an `indirect` one stays within; the
    shader checks its bounds itself."""

    key: ProgramKey
    buffers: tuple[Buffer, ...]
    grid: tuple[int, int, int]
    label: str
    indirect: Buffer | None = None


class Programs(Protocol):
    """The compiled programs of one device."""

    async def pipeline(self, key: ProgramKey) -> Pipeline:
        """Render, compile and keep; two callers that ask for one key at once share one compilation."""
        ...

"""What the engine asks of a rule that answers have to keep."""

from __future__ import annotations

from typing import Protocol


class Constraint(Protocol):
    """Follows one answer token by token."""

    def allowed(self) -> bytes:
        """The tokens that may come next, as `RowMask.allowed`; the model's stop tokens among them where the answer may
        end. Raises `NotSupported` where no token of the vocabulary can go on."""
        ...

    def advance(self, token_id: int) -> None:
        """Go on by an allowed token that is no stop token."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the answer is whole and nothing can follow it."""
        ...

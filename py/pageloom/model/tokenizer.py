"""What the rest of the project asks of a tokenizer."""

from __future__ import annotations

from typing import Protocol


class TokenizerCore(Protocol):
    """The tokenizer library of a home, made from the text of a `tokenizer.json`: `tokenizers` natively,
    `@huggingface/tokenizers` in the tab."""

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, which holds no control tokens. Nothing is added to them."""
        ...


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def bos_id(self) -> int | None: ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end a turn (end of sequence, end of turn)."""
        ...

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """The ids of `text`, without a leading BOS. Control tokens are recognised only with `allow_special`."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for in running text; b"" for a control token."""
        ...

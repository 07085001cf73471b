"""The tokenizer core outside the browser: the `tokenizers` package."""

from __future__ import annotations

from pageloom.errors import BadModelFile, NotSupported


class NativeTokenizerCore:
    """A `TokenizerCore`. Raises `BadModelFile` for a vocabulary that the library refuses, and `NotSupported` where the
    library is not installed."""

    def __init__(self, tokenizer_json: str) -> None:
        try:
            from tokenizers import Tokenizer  # noqa: PLC0415 - optional: the browser has its own
        except ImportError as error:
            raise NotSupported("the package `tokenizers` is missing; install pageloom[native]") from error
        try:
            self._tokenizer = Tokenizer.from_str(tokenizer_json)
        except Exception as error:  # the library raises nothing more precise
            raise BadModelFile(f"the vocabulary is not consistent: {error}", param="tokenizer.ggml") from error

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

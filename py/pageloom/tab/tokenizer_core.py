"""`@huggingface/tokenizers` as the core of a tokenizer."""

from __future__ import annotations

from typing import Any

from pageloom.tab.bridge import loaded_bridge


class TabTokenizerCore:
    """Implements `pageloom.model.tokenizer.TokenizerCore` over a JavaScript tokenizer."""

    def __init__(self, tokenizer_json: str) -> None:
        self._core: Any = loaded_bridge().createTokenizer(tokenizer_json)

    def encode(self, text: str) -> list[int]:
        return list(self._core.encode(text).to_py())

"""The tokenizer of a GGUF file: special tokens are found here, plain text goes to a library."""

from __future__ import annotations

from collections.abc import Callable

from pageloom.errors import InvalidArgument
from pageloom.model.gguf import GgufFile
from pageloom.model.special_tokens import TokenFinder
from pageloom.model.tokenizer import TokenizerCore
from pageloom.model.tokenizer_json import tokenizer_json
from pageloom.model.vocabulary import Vocabulary, read_vocabulary


class GgufTokenizer:
    """A `Tokenizer`. User-defined tokens (runs of spaces or HTML tags in Gemma) stand for text and are found in any
    text; control tokens are found only where the caller allows it, and before all others."""

    def __init__(self, vocabulary: Vocabulary, core: TokenizerCore, chat_template: str | None) -> None:
        self._vocabulary = vocabulary
        self._core = core
        self.chat_template = chat_template
        self._control_ids = vocabulary.control_ids()
        self._user_defined_ids = vocabulary.user_defined_ids()
        self.control_tokens = TokenFinder(self._control_ids)
        self._user_defined = TokenFinder(self._user_defined_ids)

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def add_bos(self) -> bool:
        """Whether the model wants a BOS before every prompt."""
        return self._vocabulary.add_bos and self._vocabulary.bos_id is not None

    @property
    def eos_id(self) -> int | None:
        return self._vocabulary.eos_id

    @property
    def stop_ids(self) -> frozenset[int]:
        return self._vocabulary.stop_ids

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary.texts)

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """The ids of `text`, without a leading BOS. Control tokens are recognised only with `allow_special`."""
        if not allow_special:
            return self._encode_plain(text)
        ids: list[int] = []
        for piece, is_control in self.control_tokens.split(text):
            ids += [self._control_ids[piece]] if is_control else self._encode_plain(piece)
        return ids

    def encode_continuation(self, text: str) -> list[int]:
        """The ids of `text` where it goes on from other text; control tokens are not recognised."""
        return self._encode_plain(text, after_special=False)

    def control_id(self, text: str) -> int:
        """The id of a control token, given its text. Raises `InvalidArgument` where there is none."""
        if text not in self._control_ids:
            raise InvalidArgument(f"the vocabulary has no control token {text!r}", param="text")
        return self._control_ids[text]

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it, control tokens too."""
        self._check(token_id)
        return self._vocabulary.texts[token_id]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for in running text; b"" for a control token. Raises `InvalidArgument` for an
        id that the vocabulary does not have."""
        self._check(token_id)
        return self._vocabulary.token_bytes(token_id)

    def _encode_plain(self, text: str, *, after_special: bool = True) -> list[int]:
        """Text that begins the prompt or follows a control token, or else goes on from other text."""
        ids: list[int] = []
        prefix = " " if self._vocabulary.add_space_prefix else ""
        for piece, is_user_defined in self._user_defined.split(text):
            if is_user_defined:
                ids.append(self._user_defined_ids[piece])
            else:
                ids += self._core.encode(prefix + piece if after_special else piece)
            after_special = is_user_defined
        return ids

    def _check(self, token_id: int) -> None:
        if not 0 <= token_id < len(self._vocabulary.texts):
            raise InvalidArgument(
                f"token {token_id} is outside the vocabulary of {len(self._vocabulary.texts)}", param="token_id"
            )


def build_tokenizer(gguf: GgufFile, core_factory: Callable[[str], TokenizerCore]) -> GgufTokenizer:
    """The tokenizer of a file; `core_factory` makes the library's part from the text of a `tokenizer.json`.

    Raises `BadModelFile` for a vocabulary that is damaged and `NotSupported` for a kind that is not known.
    """
    vocabulary = read_vocabulary(gguf.metadata)
    template = gguf.metadata.text("tokenizer.chat_template", "") or None
    return GgufTokenizer(vocabulary, core_factory(tokenizer_json(vocabulary)), template)

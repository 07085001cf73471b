"""Messages to token ids, so that nothing in a message can become a control token.

The template writes control tokens as text, next to the text of the messages; in its output the two look alike. So a
mark (a private-use character that occurs nowhere else) goes into the messages in front of every place where a control
token could begin, or go on from the template's own text. In the output no control token is recognised behind a mark,
or across one; then the marks are taken out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pageloom.errors import BadModelFile, InvalidArgument
from pageloom.model.chat_template import CHATML, ChatTemplate, Message, plain_messages
from pageloom.model.gguf_tokenizer import GgufTokenizer
from pageloom.model.special_tokens import TokenFinder

_PRIVATE_USE = range(0xE000, 0xF900)


def chat_template_of(tokenizer: GgufTokenizer) -> tuple[ChatTemplate, tuple[str, ...]]:
    """The template of the model file and warnings; ChatML with a warning where the file has none or a broken one."""
    ids = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    special_tokens = {name: tokenizer.token_text(token_id) for name, token_id in ids.items() if token_id is not None}
    problem = "the model file has no chat template"
    if tokenizer.chat_template:
        try:
            return ChatTemplate(tokenizer.chat_template, special_tokens=special_tokens), ()
        except BadModelFile as error:
            problem = error.message
    return ChatTemplate(CHATML, special_tokens=special_tokens), (f"{problem}; ChatML is used, answers may be poor",)


def encode_chat(
    tokenizer: GgufTokenizer,
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **variables: Any,
) -> list[int]:
    """The prompt's ids, with one leading BOS where the model wants it. Raises what `ChatTemplate.render` raises."""
    conversation = plain_messages(messages)
    mark = _unused_character([template.source, conversation, tools, variables])
    shield = _Shield(tokenizer.control_tokens, mark)
    rendered = template.render(
        [shield.message(message) for message in conversation],
        add_generation_prompt=add_generation_prompt,
        tools=shield.value(tools),
        **shield.value(variables),
    )
    ids: list[int] = []
    for piece, is_control in tokenizer.control_tokens.split(rendered, barrier=mark):
        ids += [tokenizer.control_id(piece)] if is_control else tokenizer.encode(piece.replace(mark, ""))
    if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids.insert(0, tokenizer.bos_id)
    return ids


class _Shield:
    """Puts marks into the texts of a message."""

    def __init__(self, control_tokens: TokenFinder, mark: str) -> None:
        self._tokens = control_tokens
        self._mark = mark

    def message(self, message: Message) -> dict[str, Any]:
        """`role` is left alone: templates build control tokens from it, and it can only be a word."""
        rest = {key: value for key, value in message.items() if key != "role"}
        return {"role": message["role"], **self.value(rest)}

    def value(self, value: Any) -> Any:
        """A copy of `value` with every text in it shielded, keys too."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        marked = {start for start in self._tokens.starts(text) if self._may_begin(text, start)}
        marked |= {start for start in (0, len(text) - len(text.lstrip())) if self._may_go_on(text, start)}
        parts, last = [], 0
        for start in sorted(marked):
            parts += [text[last:start], self._mark]
            last = start
        return "".join(parts) + text[last:]

    def _may_begin(self, text: str, start: int) -> bool:
        """Whether a control token begins at `start`, or would if the template's text went on right."""
        rest = text[start : start + self._tokens.longest]
        ends = {rest, rest.rstrip()} if start + len(rest) == len(text) else {rest}
        return self._tokens.match(text, start) is not None or any(
            token.startswith(end) for end in ends if end for token in self._tokens.texts
        )

    def _may_go_on(self, text: str, start: int) -> bool:
        """Whether a control token that the template's text began could end behind `start`."""
        return any(
            text[start : start + length] in self._tokens.proper_suffixes for length in range(1, self._tokens.longest)
        )


def _unused_character(values: list[Any]) -> str:
    text = json.dumps(values, ensure_ascii=False, default=str)
    for code in _PRIVATE_USE:
        if chr(code) not in text:
            return chr(code)
    raise InvalidArgument("the messages use every private-use character of Unicode's first plane", param="messages")

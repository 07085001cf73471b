"""Chat templates: the Jinja text in a model file that turns messages into a prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.exceptions import SecurityError

from pageloom.errors import BadModelFile, InvalidArgument, NotSupported
from pageloom.model.template_sandbox import BoundedEnvironment

Message = Mapping[str, Any]
"""OpenAI's chat message: `role`, `content` (a string, text parts or None) and what else the template knows."""

FIELD = "tokenizer.chat_template"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MAX_SOURCE = 256 * 1024
BASE_BUDGET = 5_000_000
BUDGET_PER_CHARACTER = 20
"""A template may look at and copy each character of its input about this often."""
_ROLE = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ChatTemplate:
    """A compiled template. Raises `BadModelFile` for one that does not compile.

    `special_tokens` (`bos_token`, `eos_token`, …) are variables of the template. `clock` is what `strftime_now` asks.
    """

    def __init__(
        self, source: str, *, special_tokens: Mapping[str, str] = {}, clock: Callable[[], datetime] = datetime.now
    ) -> None:
        self.source = source
        if len(source) > MAX_SOURCE:
            raise BadModelFile(f"a template of {len(source)} characters; {MAX_SOURCE} are allowed", param=FIELD)
        self._environment = BoundedEnvironment()
        self._environment.globals |= {
            **special_tokens,
            "raise_exception": _raise_exception,
            "strftime_now": lambda layout: clock().strftime(layout),
        }
        self._environment.budget = BASE_BUDGET
        try:
            code = self._environment.compile_bounded(source)
            self._template = Template.from_code(self._environment, code, self._environment.globals)
        except (TemplateError, RecursionError, MemoryError, SyntaxError) as error:
            raise BadModelFile(f"the chat template does not compile: {error}", param=FIELD) from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt as text, control tokens spelt out.

        Raises `InvalidArgument` for messages that are malformed or that the template refuses or fails on, and
        `BadModelFile` where the template leaves the sandbox's bounds.
        """
        conversation = plain_messages(messages)
        size = len(str(conversation)) + len(str(tools)) + len(str(variables))
        self._environment.budget = BASE_BUDGET + BUDGET_PER_CHARACTER * size
        try:
            return self._template.render(
                **variables, messages=conversation, tools=tools, add_generation_prompt=add_generation_prompt
            )
        except _Refused as error:
            raise InvalidArgument(f"the chat template refuses the messages: {error}", param="messages") from error
        except (SecurityError, OverflowError, MemoryError, RecursionError) as error:
            raise BadModelFile(f"the chat template was stopped: {error}", param=FIELD) from error
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise InvalidArgument(f"the chat template fails on these messages: {error}", param="messages") from error


def plain_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Copies with text parts joined by newlines. Raises `InvalidArgument` for a message without a usable role or
    content, and `NotSupported` for parts that are not text."""
    if not messages:
        raise InvalidArgument("messages is empty; a chat needs at least one", param="messages")
    plain = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role") if isinstance(message, Mapping) else None
        if not isinstance(role, str) or not _ROLE.fullmatch(role):
            raise InvalidArgument(f"{where}.role is {role!r}; a role is a word such as user", param=f"{where}.role")
        plain.append({**message, "content": _plain_content(message.get("content"), f"{where}.content")})
    return plain


def _plain_content(content: Any, where: str) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidArgument(f"{where} is a {type(content).__name__}; it must be text or a list of parts", param=where)
    texts = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise NotSupported(f"{where} holds a part that is not text; only text is supported", param=where)
        if not isinstance(part.get("text"), str):
            raise InvalidArgument(f"{where} holds a text part without text", param=where)
        texts.append(part["text"])
    return "\n".join(texts)


class _Refused(TemplateError):
    """The template called `raise_exception`."""


def _raise_exception(message: str) -> NoReturn:
    raise _Refused(message)

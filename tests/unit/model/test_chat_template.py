"""Chat templates: what they render, what they refuse, and that a hostile one ends soon."""

from __future__ import annotations

import tracemalloc
from datetime import datetime
from typing import Any

import pytest

from pageloom.errors import BadModelFile, InvalidArgument, NotSupported
from pageloom.model import chat_template
from pageloom.model.chat_template import CHATML, ChatTemplate
from tests.unit.model.chat_templates import STYLES

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
HELLO = [{"role": "user", "content": "hello"}]


def template_of(source: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens=SPECIAL_TOKENS, clock=lambda: datetime(2024, 3, 5))


@pytest.mark.parametrize("style", STYLES)
def test_renders_as_the_family_expects(style: str) -> None:
    case = STYLES[style]
    assert template_of(case.template).render(case.messages, **case.options) == case.prompt


def test_text_parts_are_one_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert template_of(CHATML).render([{"role": "user", "content": parts}]) == (
        "<|im_start|>user\none\ntwo<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_refusal_of_the_template_is_told_in_its_words() -> None:
    with pytest.raises(InvalidArgument, match="roles must alternate") as caught:
        template_of(STYLES["llama 2"].template).render([HELLO[0], HELLO[0]])
    assert caught.value.param == "messages"


def test_a_template_that_cannot_take_none_says_so() -> None:
    with pytest.raises(InvalidArgument, match="fails on these messages"):
        template_of("{{ messages[0].content + 'x' }}").render([{"role": "assistant", "content": None}])


def test_a_missing_helper_is_named() -> None:
    with pytest.raises(InvalidArgument, match="'fetch' is undefined"):
        template_of("{{ fetch('x') }}").render(HELLO)
    with pytest.raises(BadModelFile, match="No filter named 'lookup'"):
        template_of("{{ 'x' | lookup }}")


def test_a_template_that_is_not_jinja_is_a_bad_model_file() -> None:
    with pytest.raises(BadModelFile, match="does not compile") as caught:
        template_of("{% for %}")
    assert caught.value.param == "tokenizer.chat_template"


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], InvalidArgument),
        ([{"content": "x"}], InvalidArgument),
        ([{"role": "user|><|im_start|", "content": "x"}], InvalidArgument),
        ([{"role": "user", "content": 3}], InvalidArgument),
        ([{"role": "user", "content": [{"type": "text"}]}], InvalidArgument),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], NotSupported),
        (["hello"], InvalidArgument),
    ],
)
def test_malformed_messages_are_refused(messages: list[Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        template_of(CHATML).render(messages)


def grow(step: str, end: str = "") -> str:
    return "{% set ns = namespace(s='aaaa') %}{% for i in range(60) %}{% set ns.s" + step + "{% endfor %}" + end


HOSTILE = {
    "nested loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "loops over text": "{% set s = 'a' * 1000 %}" + "{% for c in s %}" * 5 + "{% endfor %}" * 5,
    "a large range": "{% for i in range(10 ** 9) %}{% endfor %}",
    "recursion that doubles": "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(20) }}",
    "recursion without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a block within itself": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "expressions nested without end": "{{ " + "(" * 20000 + ")" * 20000 + " }}",
    "repetition": "{{ 'a' * 10 ** 9 }}",
    "repetition of a list": "{{ ([0] * 10 ** 9) | length }}",
    "a large power": "{{ 2 ** 1000000000 }}",
    "squaring": grow(" = (loop.index + 1) ** 9 * (ns.n | default(3)) %}{% set ns.n = (ns.n | default(3)) ** 2 %}"),
    "doubling by ~": grow(" = ns.s ~ ns.s %}"),
    "doubling by +": grow(" = ns.s + ns.s %}"),
    "doubling by join": grow(" = [ns.s, ns.s] | join %}"),
    "doubling by a method": grow(" = ns.s.replace('a', 'aa') %}"),
    "doubling by a filter": grow(" = ns.s | replace('a', 'aa') %}"),
    "doubling by a format": grow(" = '%s%s' % (ns.s, ns.s) %}"),
    "doubling by a block": grow(" %}{{ ns.s }}{{ ns.s }}{% endset %}"),
    "shared lists as text": grow(" = [ns.s, ns.s] %}", "{{ ns.s }}"),
    "shared lists compared": grow(" = [ns.s, ns.s] %}", "{{ ns.s == ns.s }}"),
    "shared dicts as JSON": grow(" = {'a': ns.s, 'b': ns.s} %}", "{{ ns.s | tojson }}"),
    "shared calls of dict": grow(" = dict(a=ns.s, b=ns.s) %}", "{{ ns.s | tojson }}"),
    "shared namespaces": grow(" = namespace(a=ns.s, b=ns.s) %}", "{{ ns.s | string }}"),
    "repeated lists": grow(" = [ns.s] * 2 %}", "{{ ns.s }}"),
    "a namespace in itself": "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
    "padding": "{{ 'a'.ljust(10 ** 9) }}",
    "padding by a filter": "{{ 'a' | center(1000000000) }}",
    "a wide format": "{{ '%1000000000d' % 3 }}",
    "a width among the arguments": "{{ '%*d' % (1000000000, 3) }}",
    "a wide format by a filter": "{{ '%1000000000d' | format(3) }}",
    "a wide format by a name": "{{ '%(a)100000000d' | format(a=3) }}",
    "a wide format by a method": "{{ '{:1000000000}'.format(3) }}",
    "bytes of a number": "{{ (1).to_bytes(1000000000) }}",
    "deep JSON": "{{ messages | tojson(indent=1000000000) | length }}" + "{{ 'a' * 10 ** 8 }}",
    "the classes of Python": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "changing the messages": "{{ messages.append(1) }}",
    "much literal text": "{% for i in range(100000) %}" + "x" * 10000 + "{% endfor %}",
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_template_is_stopped(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "BASE_BUDGET", 200_000)
    tracemalloc.start()
    with pytest.raises(BadModelFile, match=r"was stopped|does not compile"):
        template_of(HOSTILE[case]).render(HELLO)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_long_honest_conversation_is_within_the_bounds() -> None:
    messages = [{"role": ("user", "assistant")[turn % 2], "content": "word " * 50} for turn in range(2000)]
    messages.append({"role": "user", "content": "x" * 1_000_000})
    for style in ("chatml", "llama 2", "llama 3", "gemma"):
        assert len(template_of(STYLES[style].template).render(messages)) > 1_400_000


def test_each_rendering_has_a_budget_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "BASE_BUDGET", 100_000)
    template = template_of("{% for i in range(1000) %}{{ i }}{% endfor %}")
    assert len({template.render(HELLO) for _ in range(5)}) == 1
    with pytest.raises(BadModelFile, match="more work"):
        template_of("{% for i in range(5000) %}{{ i }}{% endfor %}").render(HELLO)

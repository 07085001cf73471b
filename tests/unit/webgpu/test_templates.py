"""A program's text comes from its template and exactly the parameters in its key."""

from __future__ import annotations

import jinja2
import pytest

from pageloom.backends.webgpu import templates
from pageloom.backends.webgpu.program import ProgramKey
from pageloom.backends.webgpu.templates import TemplateSet
from pageloom.errors import InvalidArgument, NotSupported


def template_set(**sources: str) -> TemplateSet:
    return TemplateSet(jinja2.DictLoader(sources))


def test_a_template_receives_its_parameters() -> None:
    made = template_set(main="const A = {{ a }}u;{% if b %} const B = {{ 2 * a }}u;{% endif %}")
    assert made.render("main", {"a": 3, "b": True}) == "const A = 3u; const B = 6u;"


def test_parameters_of_imported_and_included_templates_count_as_used() -> None:
    made = template_set(
        main="{% include 'part' %}{% import 'macros' as macros with context %}{{ macros.twice('x') }}{{ a }}",
        part="{% include 'inner' %}{{ b }}",
        inner="{{ c }}",
        macros="{% macro twice(name) %}{{ name }}{{ name }}{{ d }}{% endmacro %}",
    )
    assert made.parameters("main") == {"a", "b", "c", "d"}
    assert made.render("main", {"a": 1, "b": 2, "c": 3, "d": 4}) == "32xx41"


@pytest.mark.parametrize(
    ("given", "complaint", "param"),
    [
        ({"a": 1, "b": 2, "c": 3}, "given and not used: c", "c"),
        ({"a": 1}, "not given: b", "b"),
        ({"a": 1, "B": 2}, "not given: b; given and not used: B", "B"),
    ],
)
def test_a_parameter_missing_or_unused_is_refused_by_name(given: dict[str, int], complaint: str, param: str) -> None:
    with pytest.raises(InvalidArgument, match=complaint) as refusal:
        template_set(main="{{ a }}{{ b }}").render("main", given)
    assert refusal.value.param == param


def test_a_template_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="no template nowhere"):
        template_set(main="{% include 'nowhere' %}").render("main", {})


def test_a_template_may_not_compute_what_it_includes() -> None:
    with pytest.raises(InvalidArgument, match="computed name"):
        template_set(main="{% include name %}").render("main", {"name": "main"})


def test_a_template_can_refuse_a_combination_with_a_reason() -> None:
    with pytest.raises(NotSupported, match="storage is f8; it must be f16, packed_f16 or f32"):
        templates.render(ProgramKey.of("lib/storage.wgsl.j2", storage="f8"))


@pytest.mark.parametrize("name", [name for name in templates.SHIPPED.names() if name.endswith(".wgsl.j2")])
def test_every_shipped_template_can_be_read(name: str) -> None:
    assert all(parameter.isidentifier() for parameter in templates.SHIPPED.parameters(name))


def test_keys_that_python_holds_equal_have_labels_of_their_own() -> None:
    labels = {str(ProgramKey.of("t", x=value)) for value in (1, 1.0, True, "1")}
    assert labels == {"t(x=1)", "t(x=1.0)", "t(x=True)", "t(x='1')"}


def test_parameters_are_sorted_by_name() -> None:
    assert ProgramKey.of("t", b=2, a=1) == ProgramKey.of("t", a=1, b=2)
    assert str(ProgramKey.of("t", b=2, a=1)) == "t(a=1, b=2)"

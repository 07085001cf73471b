"""A Jinja sandbox for templates out of model files: besides what Jinja forbids, time and memory are bounded.

Every compilation and rendering has a budget of work. A pass through a loop, macro or block costs the nodes in its body
and the literal text in it; strings cost their length when they are produced or searched. A container is charged with
all that it reaches where it is built or turned into text, so that sharing cannot hide exponential size. What could
outgrow the budget within one call (padding, widths in formats, large powers) is refused.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

PASS_COST = 50
ITEM_COST = 16
MAX_CALL_DEPTH = 50
"""Well before Python's own limit, which in a browser may be the end of the stack."""
MAX_INTEGER_BITS = 1024
_BUILT_IN_TYPES = (str, bool, int, float, dict, list, tuple)
_METHODS = frozenset(
    """strip lstrip rstrip split rsplit splitlines partition rpartition startswith endswith removeprefix removesuffix
    upper lower title capitalize replace join find rfind index count isdigit isalpha isalnum isspace isupper islower
    items keys values get copy""".split()  # noqa: SIM905 - a table of words
)
_FILTERS = frozenset(
    """abs capitalize count d default dictsort e escape first float int items last length list lower map max min reject
    rejectattr reverse safe select selectattr sort title trim unique upper wordcount""".split()  # noqa: SIM905
)
_WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*(\*|\d{4})")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and runs chat templates. The owner sets `budget` before each compilation and each rendering.

    Exceeding it raises Jinja's `SecurityError`, as anything else does that the sandbox forbids.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, GenerationTag],
            finalize=self.charge,
            optimized=False,
        )
        self.budget = 0
        self._depth = 0
        self.globals = {
            "range": self.globals["range"],
            "namespace": lambda *args, **values: Namespace(*args, **self.charge(values)),
            "dict": lambda *args, **values: self.charge(dict(*args, **values)),
        }
        self.filters = {name: self._charged(self.filters[name]) for name in _FILTERS}
        self.filters |= {
            "format": self._format,
            "join": self._join,
            "replace": self._replace,
            "string": lambda value: str(self.charge(value)),
            "tojson": self._to_json,
        }

    def compile_bounded(self, source: str) -> Any:
        """The code of `source` with its work charged, for `Template.from_code`."""
        return self.compile(_ChargeWork().visit(self.parse(source)))

    def spend(self, cost: int) -> str:
        self.budget -= cost
        if self.budget < 0:
            raise SecurityError("it does more work than a chat template may")
        return ""

    def charge(self, value: Any) -> Any:
        """Spends the size of `value` and of all that it reaches; returns it."""
        pending = [value]
        while pending:
            item = pending.pop()
            self.spend(ITEM_COST)
            if isinstance(item, str):
                self.spend(len(item))
            elif isinstance(item, Mapping):
                pending += [*item.keys(), *item.values()]
            elif isinstance(item, list | tuple):
                pending += item
            elif isinstance(item, Namespace):
                pending.append(object.__getattribute__(item, "_Namespace__attrs"))
        return value

    def concatenate(self, *values: Any) -> str:
        """The `~` operator."""
        return "".join([str(self.charge(value)) for value in values])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            return self._format(left, *(right if isinstance(right, tuple) else (right,)))
        if operator == "**" and not (_bits(left) * abs(right) <= MAX_INTEGER_BITS):
            raise SecurityError(f"{left} ** {right} is too large")
        if operator == "*":
            if _bits(left) + _bits(right) > MAX_INTEGER_BITS:
                raise SecurityError("a product is too large")
            repeated, times = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(repeated, str | list | tuple) and isinstance(times, int):
                self.spend(len(repeated) * max(times, 0))
        return self._charge_length(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in Jinja
        __self._depth += 1
        if __self._depth > MAX_CALL_DEPTH:
            raise SecurityError(f"its calls nest deeper than {MAX_CALL_DEPTH}")
        try:
            return __self._charge_length(__self._call_charged(__context, __obj, *args, **kwargs))
        finally:
            __self._depth -= 1

    def _call_charged(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            __self._charge_length(owner)
            if __obj.__name__ == "join":
                return __self._join(args[0], owner)
            if __obj.__name__ == "replace":
                return __self._replace(owner, *args)
        return super().call(__context, __obj, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, _BUILT_IN_TYPES) and attr not in _METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """Leaves `str.format` to `is_safe_attribute`, which refuses it: its widths may come from its arguments."""

    def _charged(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)  # keeps the marks by which Jinja passes the environment or context
        def run(*args: Any, **kwargs: Any) -> Any:
            for value in args:
                self._charge_length(value)
            return self._charge_length(function(*args, **kwargs))

        return run

    def _charge_length(self, value: Any) -> Any:
        self.spend(len(value) if isinstance(value, str | list | tuple | dict) else 1)
        return value

    def _format(self, text: str, *args: Any, **values: Any) -> str:
        if values:
            raise SecurityError("a format with names, behind which a width could hide")
        if _WIDE_FORMAT.search(text):
            raise SecurityError("a format with a width of more than 3 digits")
        self.charge(args)
        formatted: str = self.charge(text % args)
        return formatted

    def _join(self, values: Iterable[Any], separator: str = "") -> str:
        texts = [str(self.charge(value)) for value in values]
        self.spend(len(separator) * len(texts))
        return str(separator).join(texts)

    def _replace(self, text: Any, old: str, new: str, count: int = -1) -> str:
        text = str(self.charge(text))
        self.spend(text.count(old) * len(new))
        return str(text.replace(old, new, count))

    def _to_json(self, value: Any, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
        """JSON that, unlike Jinja's own, keeps characters outside ASCII and escapes nothing for HTML."""
        depth = min(max(indent or 0, 0), 16)
        self.charge(value)
        text = json.dumps(value, ensure_ascii=False, indent=depth or None, separators=separators, sort_keys=sort_keys)
        self.spend(len(text))
        return text


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _ChargeWork(NodeTransformer):
    """Puts charges into a syntax tree: for passes, for containers built, for `~`, comparisons and slices."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - named by Jinja
        return self._charge_passes(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._charge_passes(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._charge_passes(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Node:  # noqa: N802
        return self._charge_passes(node)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return _call("charge", self.generic_visit(node))

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("charge", node) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return _call("charge", self.generic_visit(node))

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("concatenate", *node.nodes)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _call("charge", node.expr)
        for operand in node.ops:
            operand.expr = _call("charge", operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("_charge_length", node) if isinstance(node.arg, nodes.Slice) else node

    def _charge_passes(self, node: Any) -> nodes.Node:
        cost = PASS_COST + sum(
            len(inner.data) if isinstance(inner, nodes.TemplateData) else 1 for inner in node.find_all(nodes.Node)
        )
        self.generic_visit(node)
        charge = nodes.ExprStmt(_call("spend", nodes.Const(cost)))
        node.body.insert(0, charge.set_lineno(node.lineno))
        return node  # type: ignore[no-any-return]


def _call(method: str, *args: Any) -> nodes.Expr:
    """A call of a method of the environment, past anything that the template may have named."""
    call = nodes.Call(nodes.EnvironmentAttribute(method), list(args), [], None, None)
    call.set_lineno(args[0].lineno or 1)
    return call


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0

"""A Jinja environment for untrusted templates: bounded in time and memory, inside this process.

Jinja's own sandbox protects Python's internals, but does not stop endless loops or unbounded memory. Two rules do.
Every value of a template has a bounded size: it is checked before an operation that can multiply (`a * n`, `replace`,
`join`), and after all others. And every operation on values, and every iteration of a loop, checks the clock. So no
single step takes long, and no sequence of steps exceeds the time limit.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from drut.model.template import sandbox_filters
from drut.model.template.sandbox_filters import MAX_CHARS, LimitError, check_chars, check_items
from drut.model.template.sandbox_rare import RARE

MAX_CHARS_MADE = 8 * MAX_CHARS  # maximum over all operations of one rendering
MAX_DEPTH = 64  # maximum of nested lists
MAX_BITS = 4096  # maximum of an integer
_WIDE = re.compile(r"\d{4}")


class _Meter:
    """The rest of one rendering's limits."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline = time.thread_time() + seconds
        self.chars_left = MAX_CHARS_MADE

    def tick(self) -> None:
        if time.thread_time() > self.deadline:
            raise LimitError(f"ran longer than {self.seconds:g} s")

    def charge(self, chars: int) -> None:
        self.chars_left -= chars
        if self.chars_left < 0:
            raise LimitError(f"made more than {MAX_CHARS_MADE} characters of text")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment; rendering must be inside `metered`. Threads: safe to use from several threads."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        self._thread = threading.local()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # operations on constants are bounded, too
            finalize=self._finalize,
            extensions=("jinja2.ext.loopcontrols", _Generation),
        )
        self.code_generator_class = _BoundedCode
        self.globals = {name: self.globals[name] for name in ("range", "cycler", "joiner")}
        self.globals |= {"dict": _Dict(), "namespace": _Namespace}
        self.filters = {**sandbox_filters.filters(self), **RARE}
        self.filters |= {"=bounded": self.bounded, "=concat": self.concat, "=listed": sandbox_filters.listed}

    @contextmanager
    def metered(self, seconds: float) -> Iterator[None]:
        """Bounds, inside the context and in this thread, time and memory of this environment's templates."""
        self._thread.meter = _Meter(seconds)
        try:
            yield
        finally:
            del self._thread.meter

    def tick(self) -> None:
        """Raises LimitError after the time limit."""
        self._thread.meter.tick()

    def bounded(self, value: Any) -> Any:
        """Returns `value`, after checking clock and size; an iterator is wrapped with these checks."""
        meter: _Meter = self._thread.meter
        meter.tick()
        if isinstance(value, str):
            check_chars(len(value))
            meter.charge(len(value))
        elif isinstance(value, (list, tuple, dict)):
            _check_tree(value)
            meter.charge(len(value))
        elif isinstance(value, int):
            _check_integer(value)
        elif isinstance(value, Iterator) and not isinstance(value, LoopContext):
            return self._watched(value)
        return value

    def concat(self, parts: Iterable[Any]) -> str:
        """Returns the parts as one string, for `~`, macros and block assignments."""
        return str(self.bounded(sandbox_filters.joined("", parts)))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            if isinstance(left, int) and isinstance(right, int):
                _check_bits(left.bit_length() * right)
        elif operator == "*":
            for sequence, count in ((left, right), (right, left)):
                if isinstance(sequence, (str, list, tuple)) and isinstance(count, int):
                    check = check_chars if isinstance(sequence, str) else check_items
                    check(len(sequence) * count)
        elif operator == "%" and isinstance(left, str):
            sandbox_filters.check_percent(left, right)
        return self.bounded(super().call_binop(context, operator, left, right))

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            args = sandbox_filters.check_method(owner, obj.__name__, args, kwargs)
        return self.bounded(super().call(context, obj, *args, **kwargs))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, (LoopContext, Macro, Namespace, Cycler, Joiner, _Dict)):
            return super().is_safe_attribute(obj, attr, value)
        return any(isinstance(obj, kind) and attr in names for kind, names in sandbox_filters.METHODS.items())

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Returns a bounded replacement if `value` is the method `format` or `format_map` of a string; else None."""
        text, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
        if not isinstance(text, str) or name not in ("format", "format_map"):
            return None

        def formatted(args: Sequence[Any], values: Mapping[str, Any]) -> str:
            return type(text)(_Formatter(self).vformat(text, args, values))

        if name == "format_map":
            return lambda values: formatted((), values)
        return lambda *args, **values: formatted(args, values)

    def _watched(self, values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            self.tick()
            yield value

    def _finalize(self, value: Any) -> Any:
        self.tick()
        return value


class _Formatter(SandboxedFormatter):
    """Formats one text, with checks of its size while it grows."""

    def __init__(self, environment: BoundedEnvironment) -> None:
        super().__init__(environment)
        self._environment, self._made = environment, 0

    def format_field(self, value: Any, format_spec: str) -> Any:
        self._environment.tick()
        if _WIDE.search(format_spec):
            raise SecurityError("a width of more than three digits in a format string is not supported")
        made = super().format_field(value, format_spec)
        self._made += len(made)
        check_chars(self._made)
        return made


class _Dict:
    """`dict` in a template: makes a dict, and has only the attribute `fromkeys` of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(sandbox_filters.listed(keys), value)


class _Namespace(Namespace):
    """A namespace whose text does not show its attributes, because only their individual sizes are bounded."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, args = args[0], args[1:]  # allows an attribute called `self`
        attributes = dict(*args, **kwargs)
        for name in attributes:
            _check_public(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


def _check_public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot have an attribute {name[:40]!r}")


class _Generation(Extension):
    """`{% generation %}` marks the text for training; for rendering it is a scope."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's interface)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _BoundedCode(CodeGenerator):
    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802
        guarded = _Guarding().visit(node)
        guarded.set_environment(self.environment)
        super().visit_Template(guarded, frame)


class _Guarding(NodeTransformer):
    """Passes the result of each operation through `bounded`, and adds a check of the clock to each loop."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.For):
            node.body.insert(0, nodes.ExprStmt(_passed(nodes.Const(None)), lineno=node.lineno))
            if node.test is not None:
                node.test = nodes.And(_passed(nodes.Const(True)), node.test)
        elif isinstance(node, (nodes.Call, nodes.Filter, nodes.Test)) and node.dyn_args is not None:
            node.dyn_args = _passed(node.dyn_args, "=listed")
        if isinstance(node, nodes.Concat):
            return _passed(nodes.List(node.nodes), "=concat")
        return _passed(node) if _makes_value(node) else node


def _makes_value(node: nodes.Node) -> TypeGuard[nodes.Expr]:
    """Whether `node` is an operation that neither `call` nor `call_binop` intercepts, and that is not O(1)."""
    match node:
        case nodes.List() | nodes.Dict() | nodes.Compare() | nodes.Test():
            return True
        case nodes.Tuple(ctx="load") | nodes.Getitem(arg=nodes.Slice()):
            return True
        case nodes.Filter():
            return not _is_of_block(node)
    return False


def _is_of_block(node: nodes.Node | None) -> bool:
    """Whether a chain of filters belongs to a block: such a chain has no first node and must stay a chain."""
    while isinstance(node, nodes.Filter):
        node = node.node
    return node is None


def _passed(node: nodes.Expr, name: str = "=bounded") -> nodes.Filter:
    """Returns `node` behind a filter whose name no template can write."""
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _check_integer(value: int) -> None:
    _check_bits(value.bit_length())


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise LimitError(f"made a number of more than {MAX_BITS} bits")


def _check_tree(value: Any) -> None:
    """Raises LimitError if a list or dict has, over all its levels, more items or characters than allowed.

    A shared value counts each time, because printing, comparing or hashing would visit it each time.
    """
    items, chars, level = 0, 0, [value]
    for _ in range(MAX_DEPTH):
        items += len(level)
        below: list[Any] = []
        for node in level:
            if isinstance(node, str):
                chars += len(node)
            elif isinstance(node, (list, tuple, dict)):
                check_items(items + len(below) + 2 * len(node))
                below.extend(node)
                if isinstance(node, dict):
                    below.extend(node.values())
            elif isinstance(node, int):
                _check_integer(node)
        if chars > MAX_CHARS:
            raise LimitError(f"made a list of more than {MAX_CHARS} characters")
        if not below:
            return
        level = below
    raise LimitError(f"made a list of more than {MAX_DEPTH} levels")

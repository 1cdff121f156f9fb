"""Elements of HTML and SVG; text is always escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

from drut.bench.render.tables import printable

_EMPTY = frozenset({"meta", "link", "input", "line", "path", "rect", "circle"})
_CASED = {"viewbox": "viewBox"}
MAX_CHARS = 2000  # maximum of one text; a server's error can be a whole page


class Html(str):
    """Markup, in contrast to text that must be escaped."""

    __slots__ = ()


def text(value: str) -> Html:
    """Escapes a text, without characters that control a terminal or the text direction, and shortened to a limit."""
    value = printable(value)
    if len(value) > MAX_CHARS:
        value = value[:MAX_CHARS] + " …"
    return Html(html.escape(value))


def el(tag: str, *children: str | None, **attributes: str | float | bool | None) -> Html:
    """Returns an element; strings that are not `Html` are text. `class_` is class, `aria_label` aria-label."""
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        name = _CASED.get(name, name)
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        parts.append(f" {name}" if value is True else f' {name}="{text(shown)}"')
    if tag in _EMPTY:
        return Html("".join(parts) + ("/>" if tag in ("line", "path", "rect", "circle") else ">"))
    return Html("".join([*parts, ">", join(children), f"</{tag}>"]))


def shorten(value: str, most: int) -> str:
    """Removes the middle of a long text: names often differ at their ends."""
    return value if len(value) <= most else value[:(most - 1) // 2] + "…" + value[-(most // 2):]


def join(children: Iterable[str | None]) -> Html:
    """Joins markup."""
    return Html("".join(child if isinstance(child, Html) else text(child) for child in children if child is not None))

"""From events to writes on the socket: inserts comment lines, joins, frames and splits."""

from __future__ import annotations

from collections.abc import Iterator

from drut.bench.mock.events import Item
from drut.bench.mock.script import Stream

END = b"0\r\n\r\n"


def writes(items: Iterator[Item], stream: Stream) -> Iterator[Item]:
    """Yields the writes of a response in HTTP's chunked coding. Nothing follows after the last one or after a cut."""
    if stream.comment_every_ms:
        items = _with_comments(items, stream.comment_every_ms / 1e3, b"\r\n\r\n" if stream.crlf else b"\n\n")
    if stream.events_per_write > 1:
        items = _joined(items, stream.events_per_write)
    items = _framed(items)
    return _cut(items, stream.split_bytes, stream.split_gap_ms / 1e3) if stream.split_bytes else items


def _with_comments(items: Iterator[Item], every_s: float, end: bytes) -> Iterator[Item]:
    """Inserts a comment line every `every_s` until the last event."""
    due, tokens, line = every_s, 0, b": keep-alive" + end
    for item in items:
        while due < item.due_s:
            yield Item(due, tokens, line)
            due += every_s
        tokens = item.tokens
        yield item


def _joined(items: Iterator[Item], count: int) -> Iterator[Item]:
    """Joins `count` events into one write, due with the last of them."""
    held: list[Item] = []
    for item in items:
        if item.data is None:
            yield from _merge(held)
            yield item
            return
        held.append(item)
        if len(held) == count:
            yield from _merge(held)
            held = []
    yield from _merge(held)


def _merge(held: list[Item]) -> Iterator[Item]:
    if held:
        yield Item(held[-1].due_s, held[-1].tokens, b"".join(item.data or b"" for item in held))


def _framed(items: Iterator[Item]) -> Iterator[Item]:
    due, tokens = 0.0, 0
    for due, tokens, data in items:
        if data is None:
            yield Item(due, tokens, None)
            return
        yield Item(due, tokens, b"%x\r\n%b\r\n" % (len(data), data))
    yield Item(due, tokens, END)


def _cut(items: Iterator[Item], size: int, gap_s: float) -> Iterator[Item]:
    """Splits data into pieces of `size` bytes, `gap_s` apart. Tokens count as sent with the last piece of their
    event."""
    free, before = 0.0, 0
    for due, tokens, data in items:
        free = max(due, free)
        pieces = [data] if data is None else [data[i:i + size] for i in range(0, len(data), size)]
        for piece in pieces[:-1]:
            yield Item(free, before, piece)
            free += gap_s
        yield Item(free, tokens, pieces[-1])
        free, before = free + gap_s, tokens

"""Server-sent events out of a byte stream (WHATWG HTML, 9.2): name and data of each event, whatever the cuts."""

from __future__ import annotations

from typing import NamedTuple

from drut.errors import DrutError

MOST_BYTES = 1 << 20  # of one event


class TooLongError(DrutError):
    """An event is past the bound."""


class Event(NamedTuple):
    """`name` is empty where the stream gives none, which stands for `message`."""

    name: bytes
    data: bytes


class SseSplitter:
    """Feed it what arrives; it gives the events that this completed, in order.

    Lines end in LF, CR LF or CR. A CR that ends what was fed waits for the next byte, since an LF may follow. Comments
    and the fields `id` and `retry` are skipped, as is an event without data.
    """

    __slots__ = ("_data", "_held", "_held_size", "_most", "_name", "_size", "_started")

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._held: list[bytes] = []  # of a line whose end has not come
        self._held_size = 0
        self._name = b""
        self._data: list[bytes] = []  # of an event whose end has not come
        self._size = 0
        self._started = False

    def feed(self, data: bytes) -> list[Event]:
        """Raises TooLongError where an event grows past the bound."""
        if self._held:
            if b"\n" not in data and b"\r" not in data and self._held[-1][-1:] != b"\r":
                self._hold(data)
                return []
            data = b"".join((*self._held, data))
            self._held, self._held_size = [], 0
        if not self._started and data:
            if data.startswith(b"\xef\xbb\xbf"[: len(data)]):
                if len(data) < 3:
                    self._hold(data)
                    return []
                data = data[3:]
            self._started = True
        if b"\r" in data:
            return self._lines_with_cr(data)
        if not self._data and not self._name and data.endswith(b"\n\n"):  # whole events, as nearly always
            events: list[Event] = []
            for block in data[:-2].split(b"\n\n"):
                if block.startswith(b"data: ") and b"\n" not in block:
                    if len(block) > self._most:
                        raise TooLongError(self._complaint())
                    events.append(Event(b"", block[6:]))
                else:
                    events += self._lines([*block.split(b"\n"), b""])
            return events
        *lines, rest = data.split(b"\n")
        events = self._lines(lines)
        self._hold(rest)
        return events

    def _lines_with_cr(self, data: bytes) -> list[Event]:
        held = data.endswith(b"\r")
        text = (data[:-1] if held else data).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        events = self._lines(lines)
        self._hold(rest + b"\r" if held else rest)
        return events

    def _lines(self, lines: list[bytes]) -> list[Event]:
        events = []
        for line in lines:
            if not line:
                if self._data:
                    events.append(Event(self._name, b"\n".join(self._data)))
                self._name, self._data, self._size = b"", [], 0
                continue
            name, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if name == b"event":
                self._name = value
            elif name == b"data":
                self._size += len(line)
                if self._size > self._most:
                    raise TooLongError(self._complaint())
                self._data.append(value)
        return events

    def _hold(self, rest: bytes) -> None:
        if rest:
            self._held.append(rest)
            self._held_size += len(rest)
            if self._held_size > self._most:
                raise TooLongError(self._complaint())

    def _complaint(self) -> str:
        return f"an event of the stream is longer than {self._most} bytes"

"""Splits a byte stream into server-sent events (WHATWG HTML, 9.2), with name and data, however the stream is cut."""

from __future__ import annotations

from typing import NamedTuple

from drut.errors import DrutError

MAX_BYTES = 1 << 20  # maximum of one event


class TooLongError(DrutError):
    """Raised for an event above the maximum length."""


class Event(NamedTuple):
    """A server-sent event. `name` is empty if the stream has none, which stands for `message`."""

    name: bytes
    data: bytes


class SseSplitter:
    """Splits a stream into events; `feed` returns the events that the new bytes complete, in order.

    Lines end in LF, CR LF or CR. A CR at the end of the input waits for the next byte, because LF may follow. Comments,
    the fields `id` and `retry`, and events without data are skipped.
    """

    __slots__ = ("_data", "_held", "_held_size", "_most", "_name", "_size", "_started")

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        self._most = most_bytes
        self._held: list[bytes] = []  # of a line whose end has not arrived
        self._held_size = 0
        self._name = b""
        self._data: list[bytes] = []  # of an event whose end has not arrived
        self._size = 0
        self._started = False

    def feed(self, data: bytes) -> list[Event]:
        """Raises TooLongError for an event above the maximum length."""
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
        if not self._data and not self._name and data.endswith(b"\n\n"):  # whole events, the usual case
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

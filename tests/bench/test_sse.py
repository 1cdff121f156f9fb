"""Events out of bytes, wherever they are cut."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.sse import MAX_BYTES, Event, SseSplitter, TooLongError


def naive(stream: bytes) -> list[Event]:
    """The whole stream at once, line by line, as the standard has it."""
    stream = stream.removeprefix(b"\xef\xbb\xbf")
    events, kind, data = [], b"", []
    for line in re.split(rb"\r\n|\n|\r", stream)[:-1]:
        if line == b"":
            if data:
                events.append(Event(kind, b"\n".join(data)))
            kind, data = b"", []
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            kind = value.removeprefix(b" ")
    return events


def fed(*parts: bytes, most_bytes: int = MAX_BYTES) -> list[Event]:
    splitter = SseSplitter(most_bytes)
    return [event for part in parts for event in splitter.feed(part)]


STREAM = (b"\xef\xbb\xbf: hello\n\ndata: {\"a\": 1}\n\nevent: x\r\ndata:no space\r\ndata:  two\r\n\r\ndata\rid: 7\r\r"
          b"data: \xe0\xa4\xa6\n\n\n\ndata: [DONE]\n\n")


def test_every_cut_in_two_and_every_byte_alone_give_the_same() -> None:
    want = naive(STREAM)
    assert want == [(b"", b'{"a": 1}'), (b"x", b"no space\n two"), (b"", b""), (b"", "द".encode()), (b"", b"[DONE]")]
    assert fed(STREAM) == want
    for cut in range(len(STREAM) + 1):
        assert fed(STREAM[:cut], STREAM[cut:]) == want, cut
    assert fed(*(STREAM[i: i + 1] for i in range(len(STREAM)))) == want


lines = st.sampled_from([b"data: x", b"data:", b"data", b"data: y: z", b": c", b"", b"", b"id: 1", b"event: e",
                         b"database: 2", b" data: 3"])
ends = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(lines, ends), max_size=12), st.lists(st.integers(0, 200), max_size=8))
def test_any_stream_in_any_pieces_is_what_the_naive_reader_reads(parts: list[tuple[bytes, bytes]],
                                                                 cuts: list[int]) -> None:
    stream = b"".join(line + end for line, end in parts)
    if stream.endswith(b"\r"):
        stream += b"\n"  # a last CR waits for what may follow
    at = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(at)]
    assert fed(*pieces) == naive(stream)


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 200 + b"\n\n", b"data: " + b"x" * 200, b"y" * 200,
                                   b"data: xxxxxxxx\n" * 20])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_event_without_bound_is_refused(piece: bytes, size: int) -> None:
    with pytest.raises(TooLongError, match="longer than 100 bytes"):
        fed(*(piece[i: i + size] for i in range(0, len(piece), size)), most_bytes=100)


def test_many_events_may_be_longer_than_the_bound_of_one() -> None:
    assert len(SseSplitter(most_bytes=100).feed(b"data: xxxxxxxx\n\n" * 50)) == 50

import time
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.errors import RequestError
from drut.model.tokenizer import Detokenizer, StopChecker, TextDelta, TextStream


@dataclass
class Bytes:
    """A vocabulary of given byte strings."""

    pieces: list[bytes]
    special_ids: frozenset[int] = frozenset()
    stripped_spaces: int = 0

    def token_bytes(self, token_id):
        return self.pieces[token_id]

    def first_bytes(self, token_id):
        return self.pieces[token_id] if 0 <= token_id < len(self.pieces) else None


# Every way to cut a character: bytes, halves and wholes of characters, invalid bytes, text that overlaps.
PIECES = [
    *(bytes([b]) for b in "é🔥न".encode()),
    "🔥".encode()[:2],
    "🔥".encode()[2:],
    "नम".encode()[1:4],
    *(s.encode() for s in ("a", "b", "ab", "aba", "é", "🔥", "नमस्ते", " ", "\n")),
    b"\xff",
    b"\x80",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf4\x90",
    b"",
    b"<special>",
]
SPECIAL = len(PIECES) - 1
VOCABULARY = Bytes(PIECES, frozenset([SPECIAL]))
ids_ = st.lists(st.integers(0, len(PIECES) - 1), max_size=40)
sizes_ = st.lists(st.integers(0, 5), min_size=1, max_size=20)
stops_ = st.lists(
    st.one_of(st.text("ab", min_size=1, max_size=4), st.text("ab é🔥\ufffdन\n", min_size=1, max_size=3)),
    max_size=4,
)


def chunks(items, sizes):
    """`items` cut into pieces of the given sizes, over and over; 0 is an empty piece."""
    start, turn = 0, 0
    while start < len(items):
        size = sizes[turn % len(sizes)] or (1 if turn >= len(sizes) else 0)
        yield items[start : start + size]
        start, turn = start + size, turn + 1


def one_shot(ids, *, skip_special=True):
    skipped = VOCABULARY.special_ids if skip_special else ()
    return b"".join(PIECES[i] for i in ids if i not in skipped).decode("utf-8", "replace")


def cut_at_stop(text, stops):
    """The oracle: try every end in order, and at each end the stop strings, the longest first."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], True
    return text, False


@settings(deadline=None)
@given(ids_, sizes_, st.booleans())
def test_streamed_text_is_one_shot_text(ids, sizes, skip_special):
    stream = Detokenizer(VOCABULARY, skip_special=skip_special)
    text = "".join(stream.push(part) for part in chunks(ids, sizes)) + stream.flush()
    assert text == one_shot(ids, skip_special=skip_special)


@settings(deadline=None)
@given(ids_, sizes_, stops_)
def test_streamed_text_with_stops_is_one_shot_text_cut(ids, sizes, stops):
    stream = TextStream(VOCABULARY, stops)
    deltas = [*(stream.push(part) for part in chunks(ids, sizes)), stream.flush()]
    assert ("".join(d.text for d in deltas), deltas[-1].stopped) == cut_at_stop(one_shot(ids), stops)


@settings(deadline=None)
@given(st.text("abc", max_size=30), sizes_, st.lists(st.text("abc", min_size=1, max_size=5), max_size=5))
def test_held_text_is_the_longest_beginning_of_a_stop_string(text, sizes, stops):
    checker, released, seen = StopChecker(stops), "", ""
    for part in chunks(text, sizes):
        new, stopped = checker.push(part)
        released, seen = released + new, seen + part
        if stopped:
            assert released == cut_at_stop(text, stops)[0]
            return
        held = [n for n in range(len(seen) + 1) if any(s.startswith(seen[len(seen) - n :]) for s in stops)]
        assert released == seen[: len(seen) - max(held, default=0)]
    assert (released + checker.flush(), False) == cut_at_stop(text, stops)


def test_a_character_waits_for_its_last_byte_and_no_longer():
    fire = Bytes([bytes([b]) for b in "🔥".encode()] + [b"x"])
    stream = Detokenizer(fire)
    assert [stream.push([i]) for i in range(5)] == ["", "", "", "🔥", "x"]
    assert stream.flush() == ""


def test_a_cut_character_is_one_replacement_at_the_end():
    stream = Detokenizer(Bytes([b"a\xf0\x9f\x94"]))
    assert (stream.push([0]), stream.flush()) == ("a", "\ufffd")


def test_an_invalid_byte_does_not_wait():
    stream = Detokenizer(Bytes([b"\xff", b"\x80"]))
    assert [stream.push([0]), stream.push([1]), stream.flush()] == ["\ufffd", "\ufffd", ""]


def test_only_the_start_of_a_text_loses_the_space_put_in_front():
    spaced = Bytes([b" Hi", b" there", b"<s>"], frozenset([2]), stripped_spaces=1)
    for at_start, expected in ((True, "Hi there"), (False, " Hi there")):
        stream = Detokenizer(spaced, at_start=at_start)
        assert "".join(stream.push([i]) for i in (2, 0, 1)) == expected


def test_the_match_that_ends_first_wins_and_then_the_longest():
    assert StopChecker(["cde", "b"]).push("abcde") == ("a", True)
    assert StopChecker(["abcd", "bc"]).push("xabcd") == ("xa", True)
    assert StopChecker(["ab", "b"]).push("xab") == ("x", True)
    assert StopChecker(["b", "ab"]).push("xab") == ("x", True)
    assert StopChecker(["ab", "b", "ab"]).push("xab") == ("x", True)


@pytest.mark.parametrize("stops", [["d Emma who", "ma who"], ["ma who", "d Emma who"]])
def test_of_two_that_end_together_the_one_that_begins_first_cuts(stops):
    checker = StopChecker(stops)
    assert checker.push("had Emma who") == ("ha", True)
    assert checker.matched == "d Emma who"


def test_nothing_follows_a_stop():
    stream = TextStream(Bytes([b"a", b"b"]), ["b"])
    assert stream.push([0, 1]) == TextDelta("a", True)
    assert stream.push([0]) == stream.flush() == TextDelta("", True)


def test_a_held_tail_is_not_lost():
    stream = TextStream(Bytes([b"see you", b" lat"]), [" later"])
    assert [stream.push([0]), stream.push([1]), stream.flush()] == [
        TextDelta("see you", False),
        TextDelta("", False),
        TextDelta(" lat", False),
    ]


@pytest.mark.parametrize("stops", ["word", [""], ["a", ""], [5], ["x" * 20000], ["xy"] * 9000])
def test_stop_strings_that_are_refused(stops):
    with pytest.raises(RequestError, match="stop"):
        StopChecker(stops)


def test_detokenizing_costs_microseconds_a_token():
    words = Bytes([b" word", b" token", " नमस्ते".encode(), b" foo bar"])
    stream = TextStream(words, ["foo baz", "\n\nUser:", "<end>", "zzz"])
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        for i in range(2000):
            stream.push([i % 4])
        best = min(best, (time.thread_time() - start) / 2000)
    assert best < 20e-6


def test_an_adversarial_stop_string_costs_the_same_for_each_character():
    checker = StopChecker(["a" * 16000 + "b"])
    start = time.thread_time()
    for _ in range(400):
        checker.push("a" * 100)
    assert time.thread_time() - start < 1
    assert len(checker.flush()) == 16000

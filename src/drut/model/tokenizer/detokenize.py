"""Incremental detokenization: token ids to text while they arrive. The unit is the byte, so a character may span
several tokens.

An incomplete character waits for its remaining bytes. An invalid byte becomes U+FFFD at once, and so does a character
that is incomplete at the end. Any split of the ids over calls gives the same text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from drut.model.tokenizer.stops import StopChecker

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class Vocabulary(Protocol):
    """The interface of a tokenizer that detokenization needs."""

    special_ids: frozenset[int]
    stripped_spaces: int  # maximum of spaces at the start of a text that are not part of it

    def token_bytes(self, token_id: int) -> bytes: ...

    def first_bytes(self, token_id: int) -> bytes | None: ...  # for the first token; None outside the vocabulary


class Detokenizer:
    """Turns ids into text. `at_start`: the ids begin a text and do not continue one.

    Some tokenizers put a space in front of every text: at the start it is removed. Some decoders also decode the first
    piece differently.
    """

    def __init__(self, tokenizer: Vocabulary, *, skip_special: bool = True, shown: Iterable[int] = (),
                 at_start: bool = False) -> None:
        """`shown`: special tokens that are not skipped."""
        self._token_bytes, self._first_bytes = tokenizer.token_bytes, tokenizer.first_bytes
        self._skipped = tokenizer.special_ids.difference(shown) if skip_special else frozenset()
        self._first = at_start
        self._spaces = tokenizer.stripped_spaces if at_start else 0
        self._decoder = _utf8_decoder(errors="replace")

    def push(self, ids: Iterable[int]) -> str:
        """Returns the text that `ids` complete."""
        skipped, token_bytes = self._skipped, self._token_bytes
        rest = (i for i in ids if i not in skipped)
        data = self._begin(rest) if self._first else b""
        data += b"".join([token_bytes(i) for i in rest])
        if self._spaces and data:
            kept = data.lstrip(b" ")
            cut = min(self._spaces, len(data) - len(kept))
            self._spaces, data = 0 if kept else self._spaces - cut, data[cut:]
        return self._decoder.decode(data)

    def _begin(self, ids: Iterator[int]) -> bytes:
        """Returns the bytes of the first id that is in the vocabulary; consumes it and the ids before it."""
        for token_id in ids:
            data = self._first_bytes(token_id)
            if data is not None:
                self._first = False
                return data
        return b""

    def flush(self) -> str:
        """Returns the rest at the end: one U+FFFD for an incomplete character, or nothing."""
        return self._decoder.decode(b"", True)


class TextDelta(NamedTuple):
    """New text, and whether a stop string ended the output."""

    text: str
    stopped: bool


class TextStream:
    """Detokenization and stop strings of one output. After a stop every call returns an empty text."""

    def __init__(
        self, tokenizer: Vocabulary, stops: Sequence[str] = (), *, skip_special: bool = True
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, skip_special=skip_special)
        self._stops = StopChecker(stops)

    def push(self, ids: Iterable[int]) -> TextDelta:
        """Returns the text that may be emitted. Push ids one by one to find out which one completed a stop string."""
        return TextDelta(*self._stops.push(self._detokenizer.push(ids)))

    def flush(self) -> TextDelta:
        """Returns all text that was held back, unless a stop string ended the output before or ends it now."""
        text, stopped = self._stops.push(self._detokenizer.flush())
        return TextDelta(text + self._stops.flush(), stopped)

"""Token ids to text while they arrive. The unit is the byte, so a character may be spread over tokens.

An incomplete character waits for its rest; an invalid byte becomes U+FFFD at once, and so does a character
that the end cuts. Any split of the ids over calls gives the same text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from drut.model.tokenizer.stops import StopChecker

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class Vocabulary(Protocol):
    """What detokenizing needs to know of a tokenizer."""

    special_ids: frozenset[int]
    stripped_spaces: int  # at most so many at the start of a text are not part of it

    def token_bytes(self, token_id: int) -> bytes: ...

    def first_bytes(self, token_id: int) -> bytes | None: ...  # as the first of a text; None outside the vocabulary


class Detokenizer:
    """Ids in, text out. `at_start`: the ids begin a text and do not continue one.

    Some tokenizers put a space in front of every text: at the start it is taken away again. Some decoders also show the
    first piece in another way.
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
        """The text that `ids` complete."""
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
        """The bytes of the first id that is in the vocabulary; takes it and those before it from `ids`."""
        for token_id in ids:
            data = self._first_bytes(token_id)
            if data is not None:
                self._first = False
                return data
        return b""

    def flush(self) -> str:
        """What is left at the end: one U+FFFD for a character that was cut, or nothing."""
        return self._decoder.decode(b"", True)


class Delta(NamedTuple):
    """New text, and whether a stop string ended it."""

    text: str
    stopped: bool


class TextStream:
    """Detokenizing and stop strings of one answer. After a stop every call gives an empty text."""

    def __init__(
        self, tokenizer: Vocabulary, stops: Sequence[str] = (), *, skip_special: bool = True
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, skip_special=skip_special)
        self._stops = StopChecker(stops)

    def push(self, ids: Iterable[int]) -> Delta:
        """The text that may go out. Push ids one by one to learn which of them completed a stop string."""
        return Delta(*self._stops.push(self._detokenizer.push(ids)))

    def flush(self) -> Delta:
        """The end of the answer: all text held back, unless a stop string came before or comes just now."""
        text, stopped = self._stops.push(self._detokenizer.flush())
        return Delta(text + self._stops.flush(), stopped)

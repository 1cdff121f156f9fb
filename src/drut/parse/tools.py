"""The tool parser: finds calls of any format in the text of an output. Other text stays content, unchanged."""

from __future__ import annotations

from drut.parse.calls import CallList, NamedCall
from drut.parse.deltas import Content, Delta, Text
from drut.parse.formats import Format
from drut.parse.offer import CallOutcome, OfferedTools


class CallParser:
    """A parser of text in pieces. Calls are removed with their marks; of the white space around them only the first
    between two texts remains."""

    def __init__(self, form: Format, offer: OfferedTools, *, only_calls: bool = False, either: bool = False) -> None:
        """`only_calls`: a grammar allows only calls, so the rest of a truncated call is not content. `either`: calls
        come first or behind another call; from other text on, all is text."""
        self._form, self._offer, self._only_calls, self._either = form, offer, only_calls, either
        self._text = Text()
        self._space = ""  # white space, held back until text or a call follows
        self._after = ""  # the same behind a call
        self._has_content = False  # some content was emitted
        self._call: CallList | NamedCall | None = None
        self._mark = ""  # the mark of the current call, and the skipped text behind it
        self._at = self._start  # the state: a method that continues, and returns whether it made progress
        self.calls = 0
        self.cut = False  # the output ended inside a call that was emitted

    def push(self, text: str) -> list[Delta]:
        """Returns the deltas of `text`."""
        self._text.rest += text
        made: list[Delta] = []
        while self._text.rest and self._at(made):
            pass
        return made

    @property
    def quoting(self) -> bool:
        """Whether the next text belongs to a string in a call."""
        return self._call is not None and self._call.quoting

    @property
    def _no_text(self) -> bool:
        """Returns whether the rest of the output can only belong to calls."""
        return self._only_calls or (self._either and self.calls > 0)

    def finish(self) -> list[Delta]:
        """Returns the content that was held back, at the end of the output."""
        made: list[Delta] = []
        if self._call is not None:
            self.cut = self._call.half_emitted
            self._end_call(self._call, made)
        if self._no_text:
            return made
        self._say(self._mark + self._text.take(len(self._text.rest)), made)
        if self._space and not self.calls:
            made.append(Content(self._space))
        return made

    def _start(self, made: list[Delta]) -> bool:
        """State: the beginning of an output, or behind a call; a bare call may follow."""
        space = self._text.skip_space()
        if self.calls:
            self._after += space
        else:
            self._space += space
        rest = self._text.rest
        if not rest:
            return False
        if rest[0] in self._form.bare:
            return self._begin("")
        mark = self._form.opens
        if self._either and mark and mark.startswith(rest[: len(mark)]):
            if len(rest) < len(mark):
                return False
            self._text.take(len(mark))
            return self._begin(mark)
        self._at = self._prose
        return True

    def _prose(self, made: list[Delta]) -> bool:
        """State: text until a mark."""
        if self._either or not self._form.opens:
            self._say(self._text.take(len(self._text.rest)), made)
            return False
        before, found = self._text.take_before(self._form.opens)
        self._say(before, made)
        return self._begin(self._form.opens) if found else False

    def _begin(self, mark: str) -> bool:
        self._mark, self._at = mark, self._open
        return True

    def _open(self, made: list[Delta]) -> bool:
        """State: behind a mark."""
        self._mark += self._text.skip_space()
        if not self._text.rest:
            return False
        listed = not self._form.named or self._text.rest[0] in "[{"
        self._call = CallList(self._offer, self.calls) if listed else NamedCall(self._offer, self.calls)
        self._at = self._inside
        return True

    def _inside(self, made: list[Delta]) -> bool:
        call = self._call
        assert call is not None
        self._text.take(call.feed(self._text.rest))
        if call.deltas:
            made += call.deltas
            call.deltas = []
            self._mark = self._after = ""
            if not self._has_content:
                self._space = ""
        self.calls = call.calls
        if call.outcome is CallOutcome.GOES_ON:
            return False
        if call.outcome is CallOutcome.BROKEN:
            self._end_call(call, made)
            self._at = self._prose
        else:
            self._call, self._at = None, self._behind
        return True

    def _end_call(self, call: CallList | NamedCall, made: list[Delta]) -> None:
        """Ends a call. If the call is incomplete, its text that was not emitted is content, unless only calls are
        allowed."""
        self._call = None
        if not self._no_text:
            self._say(self._mark + call.pending, made)
        self._mark = ""

    def _behind(self, made: list[Delta]) -> bool:
        """State: behind a call; its closing mark, if the format has one, or a separator follows."""
        self._after += self._text.skip_space()
        rest = self._text.rest
        if not rest:
            return False
        for mark in filter(None, (self._form.closes, self._form.between)):
            if rest.startswith(mark):
                self._text.take(len(mark))
                self._after = ""
                break
            if mark.startswith(rest):
                return False
        self._at = self._start
        return True

    def _say(self, text: str, made: list[Delta]) -> None:
        """Emits content; white space at its end is held back, because a call may follow it."""
        between = self._space or self._after
        text = (between if self._has_content or not self.calls else "") + text
        kept = text.rstrip()
        self._space, self._after = text[len(kept) :], ""
        if kept:
            self._has_content = True
            made.append(Content(kept))

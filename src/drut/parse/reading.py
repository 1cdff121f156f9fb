"""How the answers of one request are to be read: settled before the first token, shared by all its choices."""

from __future__ import annotations

from dataclasses import dataclass

from drut.constrain import Thought
from drut.parse.formats import Format
from drut.parse.message import MessageParser
from drut.parse.offer import Offer
from drut.parse.reasoning import ReasoningParser
from drut.parse.tools import CallParser


@dataclass(frozen=True)
class Reading:
    """`thought`: None where the answer has none. `form` with `offer`: None where nothing may be called."""

    thought: Thought | None = None
    form: Format | None = None
    offer: Offer | None = None
    only_calls: bool = False  # a grammar lets nothing but calls come
    named: bool = False  # the request names the one tool to call
    either: bool = False  # an answer is calls alone or text alone
    bound: bool = False  # a grammar binds what follows the thought, so no further one does

    @property
    def watched(self) -> Thought | None:
        """The thought as far as the engine has anything to do with it."""
        thought = self.thought
        if thought is None or thought.begun is not None:
            return thought
        return None if self.bound or thought.budget is None else thought  # it is over; a budget is for further ones

    def parser(self) -> MessageParser:
        """For one answer."""
        thought, reasoning, calls = self.thought, None, None
        if self.form is not None and self.offer is not None:
            calls = CallParser(self.form, self.offer, only_calls=self.only_calls, either=self.either)
        if thought is not None:
            reasoning = ReasoningParser(thought.opens, thought.closes, begun=thought.begun, again=not self.bound,
                                        quoted=lambda: calls is not None and calls.quoting)
        return MessageParser(reasoning, calls)

    def finish_reason(self, reason: str, parser: MessageParser) -> str:
        """What a client is told: that it is to call tools, unless the answer was cut or it knew before."""
        return "tool_calls" if reason == "stop" and parser.calls and not (parser.cut or self.named) else reason


PLAIN = Reading()

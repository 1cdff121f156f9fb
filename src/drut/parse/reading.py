"""The settings for parsing the outputs of a request: fixed before the first token, shared by all its choices."""

from __future__ import annotations

from dataclasses import dataclass

from drut.constrain import ReasoningSpec
from drut.parse.formats import Format
from drut.parse.message import MessageParser
from drut.parse.offer import OfferedTools
from drut.parse.reasoning import ReasoningParser
from drut.parse.tools import CallParser


@dataclass(frozen=True)
class Reading:
    """How to parse. `reasoning`: None if outputs have none. `form` with `offer`: None if no tool may be called."""

    reasoning: ReasoningSpec | None = None
    form: Format | None = None
    offer: OfferedTools | None = None
    only_calls: bool = False  # a grammar allows only calls
    named: bool = False  # the request names the tool to call
    either: bool = False  # an output is either only calls or only text
    bound: bool = False  # a grammar constrains what follows the reasoning, so no further reasoning follows

    @property
    def watched(self) -> ReasoningSpec | None:
        """The reasoning that the engine must track; None if there is none."""
        reasoning = self.reasoning
        if reasoning is None or reasoning.begun is not None:
            return reasoning
        return None if self.bound or reasoning.budget is None else reasoning  # begun is None: only a budget needs it

    def parser(self) -> MessageParser:
        """Returns the parser of one output."""
        reasoning, parser, calls = self.reasoning, None, None
        if self.form is not None and self.offer is not None:
            calls = CallParser(self.form, self.offer, only_calls=self.only_calls, either=self.either)
        if reasoning is not None:
            parser = ReasoningParser(reasoning.opens, reasoning.closes, begun=reasoning.begun, again=not self.bound,
                                     quoted=lambda: calls is not None and calls.quoting)
        return MessageParser(parser, calls)

    def finish_reason(self, reason: str, parser: MessageParser) -> str:
        """Returns the finish reason for the client: `tool_calls`, unless the output was truncated or the client named
        the tool."""
        return "tool_calls" if reason == "stop" and parser.calls and not (parser.cut or self.named) else reason


PLAIN = Reading()

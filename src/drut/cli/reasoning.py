"""Reasoning on the terminal: shown dimmed, and not part of the conversation."""

from __future__ import annotations

from drut.cli.conversation import Message, Talker
from drut.cli.terminal import Writer
from drut.engine.llm import LLM
from drut.parse import MessageParser, choose
from drut.parse.deltas import Content, Delta, Reasoning
from drut.parse.reasoning import ReasoningParser


def parser(talker: Talker, messages: list[Message]) -> MessageParser:
    """Returns the parser of the answer to `messages`. A server separates the reasoning of its model itself."""
    if not isinstance(talker, LLM) or talker.tokenizer is None:
        return MessageParser()
    marks = choose.marks(choose.AUTO, talker.templates)
    if marks is None:
        return MessageParser()
    begun = choose.begun(marks, talker.templates.render(messages))
    return MessageParser(ReasoningParser(*marks, begun=begun))


def show(delta: Delta, out: Writer, shown: list[str]) -> None:
    """Shows reasoning dimmed, with an empty line between it and the answer; appends the answer to `shown`."""
    if isinstance(delta, Reasoning):
        out.aside(delta.text)
        out.after_reasoning = True
    elif isinstance(delta, Content):
        if out.after_reasoning:
            out.aside("\n\n")
            out.after_reasoning = False
        shown.append(delta.text)
        out.write(delta.text)

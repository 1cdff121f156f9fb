"""Thoughts of a model on the terminal: shown dimmed, and no part of the conversation."""

from __future__ import annotations

from drut.cli.conversation import Message, Talker
from drut.cli.terminal import Writer
from drut.engine.llm import LLM
from drut.parse import MessageParser, choose
from drut.parse.deltas import Content, Delta, Reasoning
from drut.parse.reasoning import ReasoningParser


def parser(talker: Talker, messages: list[Message]) -> MessageParser:
    """For the answer to `messages`. Of a server's model its server has told the thoughts apart."""
    if not isinstance(talker, LLM) or talker.tokenizer is None:
        return MessageParser()
    marks = choose.marks(choose.AUTO, talker.templates)
    if marks is None:
        return MessageParser()
    begun = choose.begun(marks, talker.templates.render(messages))
    return MessageParser(ReasoningParser(*marks, begun=begun))


def show(delta: Delta, out: Writer, said: list[str]) -> None:
    """A thought aside, with an empty line between it and the answer; the answer also to `said`."""
    if isinstance(delta, Reasoning):
        out.aside(delta.text)
        out.thought = True
    elif isinstance(delta, Content):
        if out.thought:
            out.aside("\n\n")
            out.thought = False
        said.append(delta.text)
        out.write(delta.text)

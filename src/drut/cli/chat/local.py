"""A model that is loaded in this process, for a chat."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from drut.cli.chat.conversation import AnswerPart, Message
from drut.cli.chat.interrupt import Interrupt
from drut.engine.llm import LLM
from drut.engine.request.params import SamplingParams
from drut.parse import MessageParser, choose
from drut.parse.reasoning import ReasoningParser


class LocalModel:
    """The interface of a model for a chat, over an `LLM`."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    @property
    def room(self) -> int | None:
        return self._llm.room

    def encode_chat(self, messages: list[Message]) -> list[int]:
        return self._llm.encode_chat(messages)

    def stream(self, messages: list[Message], params: SamplingParams,
               interrupt: Interrupt) -> Generator[AnswerPart, None, None]:
        parser = self._parser(messages)
        with contextlib.closing(self._llm.stream(messages, params)) as chunks:
            for chunk in chunks:
                ended = chunk.completion is not None or interrupt.wanted
                yield AnswerPart([*parser.push(chunk.text), *(parser.finish() if ended else ())], chunk.completion)
                if ended:
                    break

    def _parser(self, messages: list[Message]) -> MessageParser:
        marks = choose.marks(choose.AUTO, self._llm.templates)
        if marks is None:
            return MessageParser()
        begun = choose.begun(marks, self._llm.templates.render(messages))
        return MessageParser(ReasoningParser(*marks, begun=begun))

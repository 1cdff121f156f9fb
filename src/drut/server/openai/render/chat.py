"""Renders output as replies and chunks of `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from drut.model.tokenizer import Tokenizer
from drut.parse import MessageParser, ParsedMessage
from drut.parse.deltas import CallArguments, CallBegins, Content, Reasoning
from drut.parse.deltas import Delta as ParsedDelta
from drut.server.openai.protocol.chat import (
    CallDelta,
    ChatChoice,
    ChatChunk,
    ChatDelta,
    ChatLogprobs,
    ChatReply,
    ChunkChoice,
    FunctionDelta,
    ReplyMessage,
)
from drut.server.openai.protocol.replies import Timings, Usage
from drut.server.openai.protocol.tools import CalledFunction, ToolCall
from drut.server.openai.render.dialect import usage, usage_so_far
from drut.server.openai.render.parts import lazily
from drut.server.openai.render.scores import Speller, chat_logprobs, prompt_logprobs
from drut.server.openai.render.timings import timings
from drut.server.stream.assembler import Assembler, TextPiece
from drut.server.stream.prepared_request import PreparedRequest


class ChatDialect:
    """OpenAI's chat format. A stream sends, for each choice, the role, then reasoning, content and tool calls as they
    come, then the finish reason."""

    def __init__(self, job: PreparedRequest, assembler: Assembler, tokenizer: Tokenizer | None) -> None:
        self._job, self._assembler, self._written = job, assembler, 0  # tokens
        self._speller = Speller(tokenizer, skip_special=job.params.skip_special_tokens,
                                shown=job.params.shown_special_ids)
        self._parsers: dict[int, MessageParser] = {}  # by choice

    def events(self, piece: TextPiece) -> Iterator[ChatChunk]:
        job = self._job
        if piece.first:
            opening = self._chunk(ChunkChoice(index=piece.index, delta=ChatDelta(role="assistant", content="")))
            if job.return_token_ids:
                opening.prompt_token_ids = piece.prompt.ids
            yield opening
        self._written += len(piece.ids)
        parser = self._parser(piece.index)
        deltas = [made for delta in self._read(parser, piece) if (made := self._delta(delta)) is not None]
        if not deltas and (piece.entries or (job.return_token_ids and piece.ids)):
            deltas = [ChatDelta(content="")]  # carries logprobs or ids of text that is held back or not wanted
        for number, delta in enumerate(deltas):
            choice = ChunkChoice(index=piece.index, delta=delta)
            if number == 0:
                choice.logprobs = self._logprobs(piece)
                choice.token_ids = piece.ids if job.return_token_ids else UNSET
            yield self._chunk(choice)
        if piece.end is not None:
            reason = job.reading.finish_reason(piece.end.finish_reason, parser)
            last = self._chunk(ChunkChoice(index=piece.index, delta=ChatDelta(), stop_reason=piece.end.stop_reason,
                                           finish_reason=reason))
            last.timings = self._timings()
            yield last

    def usage_event(self) -> ChatChunk:
        job = self._job
        return ChatChunk(id=job.id, created=job.created, model=job.model, choices=[],
                         usage=usage(job, self._assembler), system_fingerprint=job.fingerprint,
                         timings=self._timings())

    def reply(self, pieces: Sequence[TextPiece]) -> ChatReply:
        job, choices = self._job, lazily((self._choice(p) for p in pieces), whole=False)
        reply = ChatReply(id=job.id, created=job.created, model=job.model, choices=choices,
                          usage=usage(job, self._assembler), system_fingerprint=job.fingerprint,
                          timings=self._timings())
        if job.prompt_logprobs:
            reply.prompt_logprobs = prompt_logprobs(pieces[0].prompt_logprobs, self._speller)
        if job.return_token_ids:
            reply.prompt_token_ids = job.prompts[0].ids
        return reply

    def _choice(self, piece: TextPiece) -> ChatChoice:
        assert piece.end is not None, "a whole reply has whole choices"
        parser = self._parser(piece.index)
        message = ParsedMessage(self._read(parser, piece))
        made = ReplyMessage(content=message.content or (None if message.calls else ""))
        if message.reasoning and self._job.include_reasoning:
            made.reasoning_content = made.reasoning = message.reasoning
        if message.calls:
            made.tool_calls = [ToolCall(id=c.id, function=CalledFunction(c.name, c.arguments)) for c in message.calls]
        choice = ChatChoice(index=piece.index, message=made, logprobs=self._logprobs(piece),
                            finish_reason=self._job.reading.finish_reason(piece.end.finish_reason, parser),
                            stop_reason=piece.end.stop_reason)
        if self._job.return_token_ids:
            choice.token_ids = piece.ids
        return choice

    def _parser(self, index: int) -> MessageParser:
        return self._parsers.setdefault(index, self._job.reading.parser())

    @staticmethod
    def _read(parser: MessageParser, piece: TextPiece) -> list[ParsedDelta]:
        return [*parser.push(piece.text), *(parser.finish() if piece.end is not None else ())]

    def _delta(self, delta: ParsedDelta) -> ChatDelta | None:
        """Returns a parsed delta as a stream's delta; None for reasoning that the client does not want."""
        match delta:
            case Content(text):
                return ChatDelta(content=text)
            case Reasoning(text):
                return ChatDelta(reasoning_content=text, reasoning=text) if self._job.include_reasoning else None
            case CallBegins(index, call_id, name):
                begins = CallDelta(index=index, id=call_id, type="function",
                                   function=FunctionDelta(name=name, arguments=""))
                return ChatDelta(tool_calls=[begins])
            case CallArguments(index, text):
                return ChatDelta(tool_calls=[CallDelta(index=index, function=FunctionDelta(arguments=text))])

    def _logprobs(self, piece: TextPiece) -> ChatLogprobs | None:
        job = self._job
        return chat_logprobs(piece, job.params.logprobs or 0, self._speller) if job.logprobs else None

    def _timings(self) -> Timings | UnsetType:
        return timings(self._assembler.records) if self._job.timings else UNSET

    def _chunk(self, choice: ChunkChoice) -> ChatChunk:
        job = self._job
        shown: Usage | UnsetType | None = None if job.include_usage else UNSET
        if job.continuous_usage:
            shown = usage_so_far(job, self._written)
        return ChatChunk(id=job.id, created=job.created, model=job.model, choices=[choice], usage=shown,
                         system_fingerprint=job.fingerprint)

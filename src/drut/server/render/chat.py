"""Pieces as `/v1/chat/completions` tells them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from drut.model.tokenizer import Tokenizer
from drut.server.job import Job
from drut.server.pieces import Assembler, Piece
from drut.server.protocol.chat import (
    ChatChoice,
    ChatChunk,
    ChatLogprobs,
    ChatReply,
    ChunkChoice,
    Delta,
    ReplyMessage,
)
from drut.server.protocol.replies import Usage
from drut.server.render.dialect import usage, usage_so_far
from drut.server.render.scores import Speller, chat_logprobs, prompt_logprobs


class ChatDialect:
    """A stream says the role first, then text, then why it ended: an event each, for every choice."""

    def __init__(self, job: Job, assembler: Assembler, tokenizer: Tokenizer | None) -> None:
        self._job, self._assembler = job, assembler
        self._speller = Speller(tokenizer, skip_special=job.params.skip_special_tokens)
        self._encode = msgspec.json.Encoder().encode

    def events(self, piece: Piece) -> list[bytes]:
        job, made = self._job, []
        if piece.first:
            opening = self._chunk(ChunkChoice(index=piece.index, delta=Delta(role="assistant", content="")))
            if job.return_token_ids:
                opening.prompt_token_ids = piece.prompt.ids
            made.append(opening)
        if piece.text or piece.entries or (job.return_token_ids and piece.ids):
            choice = ChunkChoice(index=piece.index, delta=Delta(content=piece.text), logprobs=self._logprobs(piece))
            if job.return_token_ids:
                choice.token_ids = piece.ids
            made.append(self._chunk(choice))
        if piece.end is not None:
            made.append(self._chunk(ChunkChoice(index=piece.index, delta=Delta(), stop_reason=piece.end.stop_reason,
                                                finish_reason=piece.end.finish_reason)))
        return [self._encode(chunk) for chunk in made]

    def usage_event(self) -> bytes:
        job = self._job
        return self._encode(ChatChunk(id=job.id, created=job.created, model=job.model, choices=[],
                                      usage=usage(job, self._assembler), system_fingerprint=job.fingerprint))

    def reply(self, pieces: Sequence[Piece]) -> bytes:
        job = self._job
        reply = ChatReply(id=job.id, created=job.created, model=job.model, choices=[self._choice(p) for p in pieces],
                          usage=usage(job, self._assembler), system_fingerprint=job.fingerprint)
        if job.prompt_logprobs:
            reply.prompt_logprobs = prompt_logprobs(pieces[0].prompt_logprobs)
        if job.return_token_ids:
            reply.prompt_token_ids = job.prompts[0].ids
        return self._encode(reply)

    def _choice(self, piece: Piece) -> ChatChoice:
        assert piece.end is not None, "a whole reply has whole choices"
        choice = ChatChoice(index=piece.index, message=ReplyMessage(content=piece.text),
                            logprobs=self._logprobs(piece), finish_reason=piece.end.finish_reason,
                            stop_reason=piece.end.stop_reason)
        if self._job.return_token_ids:
            choice.token_ids = piece.ids
        return choice

    def _logprobs(self, piece: Piece) -> ChatLogprobs | None:
        job = self._job
        return chat_logprobs(piece.entries, job.params.logprobs or 0, self._speller) if job.logprobs else None

    def _chunk(self, choice: ChunkChoice) -> ChatChunk:
        job = self._job
        told: Usage | UnsetType | None = None if job.include_usage else UNSET
        if job.continuous_usage:
            told = usage_so_far(job, self._assembler)
        return ChatChunk(id=job.id, created=job.created, model=job.model, choices=[choice], usage=told,
                         system_fingerprint=job.fingerprint)

"""Renders output as replies and chunks of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from drut.model.tokenizer import Tokenizer
from drut.server.openai.protocol.completions import CompletionChoice, CompletionReply
from drut.server.openai.protocol.replies import Usage
from drut.server.openai.render.dialect import usage, usage_so_far
from drut.server.openai.render.parts import lazily
from drut.server.openai.render.scores import Speller, completion_logprobs, prompt_logprobs
from drut.server.openai.render.timings import timings
from drut.server.stream.assembler import Assembler, TextPiece
from drut.server.stream.prepared_request import PreparedRequest


class CompletionsDialect:
    def __init__(self, job: PreparedRequest, assembler: Assembler, tokenizer: Tokenizer | None) -> None:
        self._job, self._assembler, self._written = job, assembler, 0  # tokens
        self._speller = Speller(tokenizer, skip_special=job.params.skip_special_tokens)

    def events(self, piece: TextPiece) -> Iterator[CompletionReply]:
        shown: Usage | UnsetType | None = None if self._job.include_usage else UNSET
        self._written += len(piece.ids)
        if self._job.continuous_usage:
            shown = usage_so_far(self._job, self._written)
        yield self._envelope([self._choice(piece)], shown, ended=piece.end is not None)

    def usage_event(self) -> CompletionReply:
        return self._envelope([], usage(self._job, self._assembler), ended=True)

    def reply(self, pieces: Sequence[TextPiece]) -> CompletionReply:
        choices = lazily((self._whole(p) for p in pieces), whole=False)
        reply = self._envelope(choices, usage(self._job, self._assembler), ended=True)
        reply.service_tier = reply.kv_transfer_params = None
        return reply

    def _envelope(self, choices: list[CompletionChoice], shown: Usage | UnsetType | None, *,
                  ended: bool) -> CompletionReply:
        job = self._job
        return CompletionReply(id=job.id, created=job.created, model=job.model, choices=choices, usage=shown,
                               system_fingerprint=job.fingerprint,
                               timings=timings(self._assembler.records) if job.timings and ended else UNSET)

    def _whole(self, piece: TextPiece) -> CompletionChoice:
        """Returns a choice of a whole reply, in which fields without a value are null."""
        choice = self._choice(piece)
        for name in ("token_ids", "prompt_token_ids", "prompt_logprobs"):
            if getattr(choice, name) is UNSET:
                setattr(choice, name, None)
        return choice

    def _choice(self, piece: TextPiece) -> CompletionChoice:
        job, end = self._job, piece.end
        choice = CompletionChoice(
            index=piece.index, text=piece.text,
            logprobs=completion_logprobs(piece, self._speller) if job.logprobs else None,
            finish_reason=("length" if job.scoring else end.finish_reason) if end is not None else None)
        if end is not None and not job.scoring:
            choice.stop_reason = end.stop_reason
        if job.return_token_ids:
            choice.token_ids = piece.ids
            if piece.first:
                choice.prompt_token_ids = piece.prompt.ids
        if job.prompt_logprobs:
            choice.prompt_logprobs = prompt_logprobs(piece.prompt_logprobs, self._speller)
        return choice

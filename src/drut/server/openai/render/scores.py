"""Renders logprobs in the shapes of both generation routes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from drut.model.tokenizer import Tokenizer
from drut.server.openai.protocol.chat import ChatLogprobs, TokenLogprob, TopLogprob
from drut.server.openai.protocol.completions import CompletionLogprobs
from drut.server.openai.protocol.replies import PromptLogprob, PromptLogprobs
from drut.server.openai.render.parts import lazily
from drut.server.stream.assembler import TextPiece
from drut.server.stream.logprob_bytes import ScoreRow


class Speller:
    """Writes tokens as text. A token whose bytes are not whole characters is written as `bytes:\\xf0\\x9f`."""

    def __init__(self, tokenizer: Tokenizer | None, *, skip_special: bool, shown: Iterable[int] = ()) -> None:
        """`shown`: special tokens that the text includes in spite of `skip_special`."""
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids.difference(shown) if tokenizer and skip_special else frozenset[int]()
        self._known: dict[int, str] = {}  # at most the vocabulary

    def text(self, token: int) -> str:
        text = self._known.get(token)
        if text is None:
            text = self._known[token] = self._spelled(token)
        return text

    def _spelled(self, token: int) -> str:
        if self._tokenizer is None:
            return f"token_id:{token}"
        raw = self._tokenizer.token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def decoded(self, token: int) -> str:
        """Returns the token alone as text, with the replacement character for incomplete characters."""
        return self._tokenizer.token_bytes(token).decode(errors="replace") if self._tokenizer else ""

    def bytes(self, token: int) -> list[int] | None:
        if self._tokenizer is None or token in self._skipped:
            return None
        return list(self._tokenizer.token_bytes(token))


def chat_logprobs(piece: TextPiece, top: int, speller: Speller) -> ChatLogprobs:
    """Returns the logprobs of the output tokens, with a lazy list for `render.parts`."""
    return ChatLogprobs(lazily(_scored(token, row, top, speller) for token, _, row in piece.entries))


def _scored(token: int, row: ScoreRow, top: int, speller: Speller) -> TokenLogprob:
    best = [TopLogprob(speller.text(i), logprob, speller.bytes(i)) for i, _, logprob in islice(row.scores(), top)]
    return TokenLogprob(speller.text(token), row.logprob(token), speller.bytes(token), best)


def completion_logprobs(piece: TextPiece, speller: Speller) -> CompletionLogprobs:
    """Returns the logprobs of a piece, with lazy lists for `render.parts`.

    `top_logprobs` has the likeliest tokens and the drawn one; of two tokens with the same text the likelier one.
    """
    return CompletionLogprobs(
        lazily(speller.text(token) for token, _ in piece.scores()),
        lazily(None if row is None else row.logprob(token) for token, row in piece.scores()),
        lazily(None if row is None else _by_text(row, speller) for _, row in piece.scores()),
        lazily(piece.offsets()))


def prompt_logprobs(rows: list[ScoreRow | None] | None, speller: Speller) -> PromptLogprobs | None:
    """Returns the logprobs of the prompt as a lazy list for `render.parts`."""
    return None if rows is None else lazily(None if row is None else _by_id(row, speller) for row in rows)


def _by_id(row: ScoreRow, speller: Speller) -> dict[str, PromptLogprob]:
    return {str(i): PromptLogprob(logprob, rank, speller.decoded(i)) for i, rank, logprob in row.scores()}


def _by_text(row: ScoreRow, speller: Speller) -> dict[str, float]:
    named: dict[str, float] = {}
    for token, _, logprob in row.scores():
        named.setdefault(speller.text(token), logprob)
    return named

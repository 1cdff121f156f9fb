"""Logprobs in the two shapes clients know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from drut.engine.output import Logprobs
from drut.model.tokenizer import Tokenizer
from drut.server.pieces import Entry
from drut.server.protocol.chat import ChatLogprobs, TokenLogprob, TopLogprob
from drut.server.protocol.completions import CompletionLogprobs
from drut.server.protocol.replies import PromptLogprob, PromptLogprobs


class Speller:
    """How a token is written in a reply. Bytes that are no whole characters are spelled out, as `bytes:\\xf0\\x9f`."""

    def __init__(self, tokenizer: Tokenizer | None, *, skip_special: bool, shown: Iterable[int] = ()) -> None:
        """`shown`: special tokens that the text has all the same."""
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids.difference(shown) if tokenizer and skip_special else frozenset[int]()

    def text(self, token: int) -> str:
        if self._tokenizer is None:
            return f"token_id:{token}"
        raw = self._tokenizer.token_bytes(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def bytes(self, token: int) -> list[int] | None:
        if self._tokenizer is None or token in self._skipped:
            return None
        return list(self._tokenizer.token_bytes(token))


def chat_logprobs(entries: Sequence[Entry], top: int, speller: Speller) -> ChatLogprobs:
    content = []
    for token, _, scores in entries:
        assert scores is not None, "only a prompt's first token has no scores"
        best = [TopLogprob(speller.text(i), p.logprob, speller.bytes(i)) for i, p in islice(scores.items(), top)]
        content.append(TokenLogprob(speller.text(token), scores[token].logprob, speller.bytes(token), best))
    return ChatLogprobs(content)


def completion_logprobs(entries: Sequence[Entry], speller: Speller) -> CompletionLogprobs:
    """`top_logprobs` holds the likeliest tokens and the drawn one; of two spelled alike the likelier counts."""
    made = CompletionLogprobs([], [], [], [])
    for token, offset, scores in entries:
        made.tokens.append(speller.text(token))
        made.text_offset.append(offset)
        made.token_logprobs.append(None if scores is None else scores[token].logprob)
        made.top_logprobs.append(None if scores is None else _by_text(scores, speller))
    return made


def prompt_logprobs(scored: list[Logprobs | None] | None) -> PromptLogprobs | None:
    if scored is None:
        return None
    return [None if entry is None else {str(i): PromptLogprob(*p) for i, p in entry.items()} for entry in scored]


def _by_text(scores: Logprobs, speller: Speller) -> dict[str, float]:
    named: dict[str, float] = {}
    for token, p in scores.items():
        named.setdefault(speller.text(token), p.logprob)
    return named

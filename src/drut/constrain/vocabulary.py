"""Converts a tokenizer's vocabulary for the grammar library: the bytes of every id, and the ids that are not text."""

from __future__ import annotations

from collections.abc import Iterable

from llguidance import LLTokenizer, TokenizerWrapper

from drut.model.tokenizer import Tokenizer

# The library groups tokens by these patterns and allows or forbids a whole group at once if the grammar does: mostly
# inside a JSON string, by the number of characters that may still come.
_INSIDE = r'[^"\\\x00-\x1F\x7F]'
SLICES = [r"[\x20\x0A\x0D\x09]+", *(f"{_INSIDE}{{1,{most}}}" for most in (4, 10, 16, 30)), f"{_INSIDE}+"]


class _Bytes:
    """The interface of a tokenizer for the library."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, eos_ids: Iterable[int]) -> None:
        ends = frozenset(eos_ids)
        self._tokenizer = tokenizer
        self.tokens = [tokenizer.token_bytes(i) for i in range(vocab)]
        # The text of special tokens never matches the text of a grammar: only ordinary tokens spell it.
        self.special_token_ids = sorted(i for i in tokenizer.special_ids | ends if i < vocab)
        self.eos_token_id = min(ends, default=vocab)
        self.bos_token_id = tokenizer.bos_id
        if not ends:  # the library requires one: an id without a logit
            self.tokens.append(b"<eos>")
            self.special_token_ids.append(vocab)

    def __call__(self, text: str | bytes) -> list[int]:
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        return self._tokenizer.encode_more(text, parse_special=False)


def read(tokenizer: Tokenizer, vocab: int, eos_ids: frozenset[int]) -> LLTokenizer:
    """Returns the library's tokenizer. `vocab`: ids that have logits; `eos_ids`: ids that end an output, all below
    `vocab`."""
    source = _Bytes(tokenizer, vocab, eos_ids)
    return LLTokenizer(TokenizerWrapper(source), n_vocab=len(source.tokens), eos_token=sorted(eos_ids) or [vocab],
                       slices=SLICES)

"""A tokenizer's vocabulary as the grammar library wants it: the bytes of every id, and which ids are no text."""

from __future__ import annotations

from collections.abc import Iterable

from llguidance import LLTokenizer, TokenizerWrapper

from drut.model.tokenizer import Tokenizer

# The library sorts tokens by these patterns, and takes or leaves those of one together where a grammar does: mostly the
# inside of a JSON string, of which so many characters may still come.
_INSIDE = r'[^"\\\x00-\x1F\x7F]'
SLICES = [r"[\x20\x0A\x0D\x09]+", *(f"{_INSIDE}{{1,{most}}}" for most in (4, 10, 16, 30)), f"{_INSIDE}+"]


class _Bytes:
    """What the library asks of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, eos_ids: Iterable[int]) -> None:
        ends = frozenset(eos_ids)
        self._tokenizer = tokenizer
        self.tokens = [tokenizer.token_bytes(i) for i in range(vocab)]
        # Their text is never the text of a grammar: only ordinary tokens spell it.
        self.special_token_ids = sorted(i for i in tokenizer.special_ids | ends if i < vocab)
        self.eos_token_id = min(ends, default=vocab)
        self.bos_token_id = tokenizer.bos_id
        if not ends:  # the library must have one: an id that no logit stands for
            self.tokens.append(b"<eos>")
            self.special_token_ids.append(vocab)

    def __call__(self, text: str | bytes) -> list[int]:
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        return self._tokenizer.encode_more(text, parse_special=False)


def read(tokenizer: Tokenizer, vocab: int, eos_ids: frozenset[int]) -> LLTokenizer:
    """`vocab`: ids that have logits; `eos_ids`: those that end an answer, all below `vocab`."""
    source = _Bytes(tokenizer, vocab, eos_ids)
    return LLTokenizer(TokenizerWrapper(source), n_vocab=len(source.tokens), eos_token=sorted(eos_ids) or [vocab],
                       slices=SLICES)

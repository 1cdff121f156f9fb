"""Bounds vocabularies for which the library's time per text grows with the longest possible piece or word."""

from __future__ import annotations

import tokenizers
from tokenizers import models

from drut.errors import UnsupportedError

MAX_PIECE_CHARS = 256  # unigram: at each character of a text the library tries pieces of each length
MAX_WORD_CHARS = 200  # WordPiece: the library tries each part of a word; 100 is usual
_WORDS_KEPT = 1000  # cached words per thread: 7 MB for long words; the library's default of 10,000 would take 67 MB


def bound_words(backend: tokenizers.Tokenizer, name: str) -> None:
    """Raises UnsupportedError for a vocabulary with which a text could take minutes; bounds the number of cached words.

    The library caches the words that it has split, for each thread.
    """
    model = backend.model
    if isinstance(model, models.Unigram):
        longest = max(map(len, backend.get_vocab(with_added_tokens=False)), default=0)
        if longest > MAX_PIECE_CHARS:
            raise UnsupportedError(f"{name}: a unigram piece of {longest} characters is longer than the maximum of "
                                   f"{MAX_PIECE_CHARS}")
    if isinstance(model, models.WordPiece) and model.max_input_chars_per_word > MAX_WORD_CHARS:
        raise UnsupportedError(f"{name}: max_input_chars_per_word {model.max_input_chars_per_word} is more than the "
                               f"maximum of {MAX_WORD_CHARS}")
    if hasattr(model, "_resize_cache"):  # only some kinds have a cache
        model._resize_cache(_WORDS_KEPT)

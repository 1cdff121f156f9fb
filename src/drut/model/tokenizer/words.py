"""Vocabularies whose library takes time for each text that grows with the longest piece, or word, there may be."""

from __future__ import annotations

import tokenizers
from tokenizers import models

from drut.errors import UnsupportedError

MOST_PIECE_CHARS = 256  # of a unigram vocabulary: at each character of a text the library tries pieces of each length
MOST_WORD_CHARS = 200  # of a WordPiece vocabulary, which tries each part of a word; usual are 100
_WORDS_KEPT = 1000  # a thread: 7 MB, where a client sends long new words; the 10,000 of the library would be 67


def bound_words(backend: tokenizers.Tokenizer, name: str) -> None:
    """UnsupportedError for a vocabulary with which a text could take minutes; bounds how many words are remembered.

    The library remembers words it has split, in each thread anew.
    """
    model = backend.model
    if isinstance(model, models.Unigram):
        longest = max(map(len, backend.get_vocab(with_added_tokens=False)), default=0)
        if longest > MOST_PIECE_CHARS:
            raise UnsupportedError(f"{name}: a unigram piece of {longest} characters is longer than the "
                                   f"{MOST_PIECE_CHARS} that are supported")
    if isinstance(model, models.WordPiece) and model.max_input_chars_per_word > MOST_WORD_CHARS:
        raise UnsupportedError(f"{name}: max_input_chars_per_word {model.max_input_chars_per_word} is more than the "
                               f"{MOST_WORD_CHARS} that are supported")
    if hasattr(model, "_resize_cache"):  # of the kinds that remember any
        model._resize_cache(_WORDS_KEPT)

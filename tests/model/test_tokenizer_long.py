"""A long text is encoded without the interpreter's lock, with the ids that it has piece by piece."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from drut.errors import ModelFileError, UnsupportedError
from drut.model.tokenizer.pieces import TextPieces
from drut.model.tokenizer.tokenizer import LONG_TEXT, TextRules, encode
from drut.model.tokenizer.tokenizer import Tokenizer as Made


@pytest.fixture(scope="module")
def backend() -> Tokenizer:
    letters = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab = letters | {"ab": 256, "abc": 257}
    made = Tokenizer(models.BPE(vocab, [("a", "b"), ("ab", "c")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return made


class Alone:
    """The library's tokenizer, which must not be given a long text alone."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend

    def encode(self, text: str, **kwargs: Any) -> Any:
        assert len(text) <= LONG_TEXT
        return self._backend.encode(text, **kwargs)

    def encode_batch(self, texts: list[str], **kwargs: Any) -> Any:
        return self._backend.encode_batch(texts, **kwargs)


def test_long_and_short_texts_have_the_same_ids(backend: Tokenizer) -> None:
    piece = "abcab xyz \u00e9\u4e2d "
    short = encode(backend, piece, "model")
    text = piece * (LONG_TEXT // len(piece) + 1)
    assert len(text) > LONG_TEXT
    assert encode(Alone(backend), text, "model") == short * (len(text) // len(piece))  # type: ignore[arg-type]


def test_what_the_library_cannot_encode_is_one_error_in_any_length() -> None:
    broken = Tokenizer(models.WordLevel({"a": 0}, unk_token="gone"))
    for text in ("b", "b" * (LONG_TEXT + 1)):
        with pytest.raises(ModelFileError, match="cannot encode this text"):
            encode(broken, text, "model")


def piece_of(chars: int) -> models.Model:
    return models.Unigram([("<unk>", 0.0), ("a", -1.0), ("a" * chars, -1.0)], unk_id=0, byte_fallback=False)


def words_of(chars: int) -> models.Model:
    return models.WordPiece({"<unk>": 0, "a": 1, "##a": 2}, unk_token="<unk>", max_input_chars_per_word=chars)


@pytest.mark.parametrize(("model", "most", "words"), [
    (piece_of, 256, "a unigram piece of 257 characters is longer than the maximum of 256"),
    (words_of, 200, "max_input_chars_per_word 201 is more than the maximum of 200"),
])
def test_what_would_take_time_that_grows_with_the_square_of_a_text_is_refused(
        model: Callable[[int], models.Model], most: int, words: str) -> None:
    """A piece as long as a text of 200,000 characters took five minutes of that text."""
    text = "a" * 100 + " " + "a" * 20_000
    made = Made(Tokenizer(model(most)), (), TextPieces(), TextRules(), "m")
    start = time.process_time()
    assert made.encode(text)
    assert time.process_time() - start < 2
    with pytest.raises(UnsupportedError, match=words):
        Made(Tokenizer(model(most + 1)), (), TextPieces(), TextRules(), "m")

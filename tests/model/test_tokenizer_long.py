"""A long text is encoded without the interpreter's lock, with the ids that it has piece by piece."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from drut.errors import ModelFileError
from drut.model.tokenizer.tokenizer import LONG_TEXT, encode


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

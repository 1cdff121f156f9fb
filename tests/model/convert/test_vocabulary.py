"""A tokenizer from one container into the other and back gives the same ids and text, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drut.errors import UnsupportedError
from drut.model.convert.vocabulary import gguf_keys, write_hf
from drut.model.tokenizer import Tokenizer, from_gguf, from_hf
from tests.model.sentencepiece import metadata
from tests.model.test_tokenizer_sentencepiece import SMALL, WORDS
from tests.model.tokenizer_texts import texts
from tests.model.tokenizer_vocabularies import DISTINCT, own_metadata

TEXTS = texts(40, 4, ["<[tool]>", "<[bos]>"])


def alike(one: Tokenizer, other: Tokenizer) -> None:
    for text in TEXTS:
        for add, parse in ((True, True), (False, False)):
            ids = one.encode(text, add_special=add, parse_special=parse)
            assert other.encode(text, add_special=add, parse_special=parse) == ids, text
            assert other.decode(ids, skip_special=add) == one.decode(ids, skip_special=add)


def as_hf(given: dict[str, Any], folder: Path) -> tuple[Tokenizer, Tokenizer]:
    tokenizer = from_gguf(given, "m.gguf")
    write_hf(tokenizer, folder)
    return tokenizer, from_hf(folder)


@pytest.mark.parametrize("pre", DISTINCT.values())
def test_every_way_to_cut_text_goes_there_and_back(tmp_path: Path, pre: str) -> None:
    first, hf = as_hf(own_metadata(pre) | {"tokenizer.ggml.add_eos_token": True}, tmp_path)
    alike(first, hf)
    keys = gguf_keys(hf, hf.vocab_size + 3, "m")
    alike(first, from_gguf(keys, "again.gguf"))
    assert keys["tokenizer.ggml.token_type"][-3:] == [5] * 3  # type: ignore[index]


@pytest.mark.parametrize("changes", [{}, {"add_space_prefix": False}, {"add_bos_token": False, "add_eos_token": True}])
def test_sentencepiece_becomes_a_tokenizer_json_but_no_gguf(tmp_path: Path, changes: dict[str, Any]) -> None:
    first, hf = as_hf(metadata(**changes), tmp_path)
    alike(first, hf)
    with pytest.raises(UnsupportedError, match="m: the tokenizer has a pre-tokenizer that GGUF has no name for here"):
        gguf_keys(hf, hf.vocab_size, "m")


def test_unigram_becomes_a_tokenizer_json_but_no_gguf(tmp_path: Path) -> None:
    first, hf = as_hf(SMALL | {"tokenizer.ggml.add_space_prefix": True}, tmp_path)
    for text in ("a b", "  a b a", "b</s>a"):
        assert hf.encode(text) == first.encode(text)
        assert hf.decode(hf.encode(text)) == first.decode(first.encode(text))
    with pytest.raises(UnsupportedError, match="'Unigram' cannot be written to GGUF"):
        gguf_keys(hf, hf.vocab_size, "m")


def test_what_stands_around_a_text_is_not_lost(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="other tokens than BOS and EOS to a text"):
        as_hf(WORDS, tmp_path)

"""Published vocabularies and every way to cut text: the ids are llama.cpp's, from its own test vectors and of 2,000
more texts each, as `tests/golden/make_tokenizers.py` took them from it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from drut.model.tokenizer import Detokenizer, Tokenizer, from_gguf, from_hf
from drut.model.tokenizer.splitting import SPLITTINGS
from tests.llama_sources import llama_models
from tests.model.tokenizer_texts import DIFFERENT
from tests.model.tokenizer_vocabularies import (
    CHUNK,
    COUNT,
    DISTINCT,
    GOLDEN,
    PUBLISHED,
    chunks,
    digest,
    own_metadata,
    published_metadata,
)

KNOWN = json.loads(GOLDEN.read_text(encoding="utf-8"))
SAMPLE = 3  # chunks of 20 that every run looks at
VECTORS = "\n__ggml_vocab_test__\n"
WITHOUT_VECTORS = {"aquila", "baichuan", "gpt-neox", "nomic-bert-moe"}


@functools.lru_cache(maxsize=1)
def published(name: str) -> tuple[dict[str, Any], Tokenizer]:
    metadata = published_metadata(llama_models(), name)
    return metadata, from_gguf(metadata, name)


def wrong_chunks(group: str, name: str, metadata: dict[str, Any], tokenizer: Tokenizer, most: int) -> list[int]:
    def encode(text: str, add: bool, parse: bool) -> list[int]:
        return tokenizer.encode(text, add_special=add, parse_special=parse)

    known = KNOWN[group][name]
    assert len(known) == COUNT // CHUNK
    made = zip(range(most), known, chunks(name, metadata), strict=False)
    return [i for i, expected, chunk in made if digest(encode, chunk) != expected]


@pytest.mark.model
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_vocabularies_give_the_ids_of_llama_cpp(name: str) -> None:
    metadata, tokenizer = published(name)
    vectors = llama_models() / f"ggml-vocab-{name}.gguf.inp"
    assert vectors.exists() == (name not in WITHOUT_VECTORS)
    if vectors.exists():
        given = vectors.read_text(encoding="utf-8").split(VECTORS)
        lines = vectors.with_suffix(".out").read_text().splitlines()
        expected = [list(map(int, line.split())) for line in lines]
        assert 45 <= len(expected) <= len(given) <= len(expected) + 1
        for text, ids in zip(given, expected, strict=False):
            assert tokenizer.encode(text, add_special=False, parse_special=False) == ids, text
    assert not wrong_chunks("published", name, metadata, tokenizer, SAMPLE)


@pytest.mark.model
@pytest.mark.parametrize("name", ["llama-spm", "phi-3", "baichuan", "gemma-4", "llama-bpe", "command-r"])
def test_text_comes_back_whole_and_streamed(name: str) -> None:
    metadata, tokenizer = published(name)
    normal = "NFC" if SPLITTINGS.get(metadata.get("tokenizer.ggml.pre", ""), SPLITTINGS["gpt-2"]).nfc else None
    for text in next(iter(chunks(name, metadata))):
        if normal is None and "\u2581" not in text:
            ids = tokenizer.encode(text, add_special=False, parse_special=False)
            stream = Detokenizer(tokenizer, skip_special=False, at_start=True)
            shown = "".join(stream.push([i]) for i in ids) + stream.flush()
            assert shown == tokenizer.decode(ids, skip_special=False) == text


@pytest.mark.model
@pytest.mark.parametrize("name", ["nomic-bert-moe", "phi-3"])
def test_tokenizer_json_of_it_is_read_back(tmp_path: Path, name: str) -> None:
    """With a map of characters, which no other file here has."""
    metadata, tokenizer = published(name)
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    again = from_hf(tmp_path)
    for text in next(iter(chunks(name, metadata))):
        assert again.encode(text, add_special=False) == tokenizer.encode(text, add_special=False), text


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_all_texts_with_published_vocabularies(name: str) -> None:
    assert not wrong_chunks("published", name, *published(name), COUNT)


@pytest.mark.parametrize("pre", DISTINCT.values())
def test_every_way_to_cut_text_gives_the_ids_of_llama_cpp(pre: str) -> None:
    metadata = own_metadata(pre)
    assert not wrong_chunks("own", pre, metadata, from_gguf(metadata, pre), 1)


@pytest.mark.slow
@pytest.mark.parametrize("pre", SPLITTINGS)
def test_all_texts_with_every_way_to_cut_text(pre: str) -> None:
    metadata = own_metadata(pre)
    assert not wrong_chunks("own", pre, metadata, from_gguf(metadata, pre), COUNT)


def test_other_names_cut_alike_in_llama_cpp_too() -> None:
    for pre, splitting in SPLITTINGS.items():
        if pre not in DIFFERENT:
            plain = {name: digests for name, digests in KNOWN["own"].items() if SPLITTINGS[name] == splitting}
            assert all(digests == KNOWN["own"][pre] for digests in plain.values()), pre


# Where llama.cpp differs from the published expression, the pieces of the published one.
PIECES = {
    "tekken": ["Hello", " WORLD", " Hello", "World", " हिन्दी", " ", "1", "2", "3", "4", "'s"],
    "gpt-4o": ["Hello", " WORLD", " Hello", "World", " हिन्दी", " ", "123", "4", "'s"],
    "youtu": ["Hello", " WORLD", " Hello", "World", " हिन्दी", " ", "1", "2", "3", "4", "'s"],
    "granite-embed-multi-97m": ["Hello", " WORLD", " Hello", "World", " हिन्दी", " ", "123", "4", "'s"],
    "kimi-k2": ["Hello", " WORLD", " Hello", "World", " हिन्दी", " ", "123", "4", "'s"],
    "tiny_aya": ["Hello", " WORLD", " Hello", "World", " हिन्दी", " ", "1", "234", "'s"],
    "afmoe": ["Hello", " WORLD", " HelloWorld", " हिन्दी", " ", "1", "234", "'s"],
}


@pytest.mark.parametrize("pre", PIECES)
def test_pieces_are_those_of_the_published_expression(pre: str) -> None:
    text = "Hello WORLD HelloWorld हिन्दी 1234's"
    split = SPLITTINGS[pre].pre_tokenizer().pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in split] == PIECES[pre]

"""Decoders, normalizers, models of a tokenizer.json: ids and text are the library's, and a stream gives the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from drut.model.tokenizer import Detokenizer, from_hf
from drut.model.tokenizer import Tokenizer as Ours
from tests.model.tokenizer_texts import MARKS, texts

EDGES = ["", " ", "  ", "Hello", " Hello", "  Hello", "<s> Hello", "<s>Hello", "▁under▁score", "x<unk>y", "🦙 llama",
         "a.b, c! d ' e n't do not", "Hello <tool>x</s>", "x▁ ▁y", "\t\n ", "é e\u0301", "<0x41>", "नमस्ते", "a </s> b"]
TEXTS = [*EDGES, *texts(150, 5)]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                           decoders.Strip(" ", 1, 0)])
SPACES = pre_tokenizers.Metaspace


def bpe(*specials: str) -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = SPACES(prepend_scheme="always", split=True)
    return trained(made, trainers.BpeTrainer(vocab_size=600, limit_alphabet=90, show_progress=False,
                                             special_tokens=["<unk>", "<s>", "</s>", *specials]))


def trained(made: Tokenizer, trainer: Any) -> Tokenizer:
    made.train_from_iterator((text for text in texts(200, 9) if not any(mark in text for mark in MARKS)), trainer)
    state = json.loads(made.to_str())
    state["added_tokens"] = state["added_tokens"][:3]  # bytes are ordinary entries
    return Tokenizer.from_str(json.dumps(state))


def spaced(scheme: str, decoder: Any = None) -> Tokenizer:
    made = bpe(*BYTES)
    made.pre_tokenizer = SPACES(prepend_scheme=scheme, split=False)
    made.decoder = decoder or decoders.Metaspace(prepend_scheme=scheme)
    return made


def prepended(decoder: Any) -> Tokenizer:
    """The layout of Llama 2."""
    made = bpe(*BYTES)
    made.pre_tokenizer = None
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoder
    return made


def gemma() -> Tokenizer:
    made = bpe(*BYTES)
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return made


def unigram() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    made.pre_tokenizer = SPACES(prepend_scheme="always", split=True)
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    return trained(made, trainers.UnigramTrainer(vocab_size=500, unk_token="<unk>", show_progress=False,
                                                 special_tokens=["<unk>", "<s>", "</s>"]))


def word_piece(**options: bool) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer(lowercase=options.pop("lowercase", True))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(**options)
    return trained(made, trainers.WordPieceTrainer(vocab_size=600, show_progress=False,
                                                   special_tokens=["<unk>", "<s>", "</s>"]))


LAYOUTS = {
    "metaspace, always": lambda: spaced("always"),
    "metaspace, first": lambda: spaced("first"),
    "metaspace, never": lambda: spaced("never"),
    "llama, metaspace first": lambda: spaced("first", LLAMA),
    "llama": lambda: prepended(LLAMA),
    "two spaces stripped": lambda: prepended(decoders.Sequence([
        decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 2, 0)])),
    "fuse alone": lambda: prepended(decoders.Fuse()),
    "fuse alone, in a sequence": lambda: prepended(decoders.Sequence([decoders.Fuse()])),
    "replace alone": lambda: prepended(decoders.Replace("▁", " ")),
    "bytes alone": lambda: prepended(decoders.ByteFallback()),
    "strip of each piece": lambda: prepended(decoders.Sequence([
        decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)])),
    "sequences in sequences": lambda: prepended(decoders.Sequence([
        decoders.Sequence([decoders.Replace("▁", "_"), decoders.Replace("_", " ")]),
        decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])])),
    "gemma": gemma,
    "unigram": unigram,
    "word pieces": word_piece,
    "word pieces, as they are": lambda: word_piece(cleanup=False, lowercase=False),
}


@pytest.fixture(scope="module", params=LAYOUTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ours, Tokenizer]:
    folder = tmp_path_factory.mktemp("layout")
    reference = LAYOUTS[request.param]()
    reference.add_tokens(["<tool>", "x▁y"])
    reference.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return from_hf(folder), reference


def streamed(tokenizer: Ours, ids: list[int], *, skip_special: bool) -> str:
    stream = Detokenizer(tokenizer, skip_special=skip_special, at_start=True)
    return "".join(stream.push([i]) for i in ids) + stream.flush()


def test_ids_and_text_are_those_of_the_library(pair: tuple[Ours, Tokenizer]) -> None:
    tokenizer, reference = pair
    for text in TEXTS:
        ids = reference.encode(text).ids
        assert tokenizer.encode(text) == ids, text
        for skip in (True, False):
            expected = reference.decode(ids, skip_special_tokens=skip)
            assert tokenizer.decode(ids, skip_special=skip) == expected, text
            assert streamed(tokenizer, ids, skip_special=skip) == expected, text


def test_text_of_any_ids_is_the_librarys_where_it_is_valid(pair: tuple[Ours, Tokenizer]) -> None:
    tokenizer, reference = pair
    size = reference.get_vocab_size()

    @settings(max_examples=120, deadline=None)
    @given(st.lists(st.integers(0, size + 3), max_size=16), st.booleans())
    def check(ids: list[int], skip: bool) -> None:
        text = tokenizer.decode(ids, skip_special=skip)
        assert streamed(tokenizer, ids, skip_special=skip) == text
        if "\ufffd" not in text:  # of broken bytes the library replaces each, this decoder each broken sequence
            assert text == reference.decode(ids, skip_special_tokens=skip)

    check()


def test_text_that_follows_text_gets_no_space_in_front(pair: tuple[Ours, Tokenizer]) -> None:
    tokenizer, _ = pair
    if tokenizer.id_of("##e") is None:  # WordPiece shows a space before every word
        for text in ("fox", "o", "quick brown"):
            for parse in (True, False):
                ids = tokenizer.encode_more(text, parse_special=parse)
                shown = b"".join(map(tokenizer.token_bytes, ids)).decode()
                for byte in set(text):  # which some decoders do not know
                    shown = shown.replace(f"<0x{ord(byte):02X}>", byte)
                assert shown.replace("▁", " ") in (text, text.replace(" ", ""))  # one decoder shows no spaces


def test_bytes_that_are_no_character_are_one_mark_a_sequence_and_wait_for_no_longer(tmp_path: Path) -> None:
    reference = prepended(LLAMA)
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = from_hf(tmp_path)
    fire = [tokenizer.id_of(f"<0x{byte:02X}>") or 0 for byte in "🔥".encode()]
    stream = Detokenizer(tokenizer)
    assert [stream.push([i]) for i in (*fire, fire[0], fire[1], fire[0])] == ["", "", "", "🔥", "", "", "\ufffd"]
    assert stream.flush() == "\ufffd"

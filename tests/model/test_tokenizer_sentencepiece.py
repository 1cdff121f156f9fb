"""GGUF's `llama` tokenizer: SentencePiece's merges by score, bytes for what is no piece, and the file's flags."""

from __future__ import annotations

import time
from typing import Any

import pytest

from drut.errors import ModelFileError
from drut.model.tokenizer import Detokenizer, Tokenizer, from_gguf
from tests.model.sentencepiece import TOOL, merged, metadata
from tests.model.tokenizer_texts import MARKS, texts

BOS, EOS = 1, 2
TEXTS = ["", " ", "   ", "a", " fox", "fox  jumps", "x\ny", "🦙 zoo", "\x01\x00", "\u2581", "नमस्ते दुनिया",
         *texts(150, 21)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return from_gguf(metadata(), "m.gguf")


@pytest.mark.parametrize("prefix", [True, False])
def test_ids_are_those_of_merging_by_score(prefix: bool, caplog: pytest.LogCaptureFixture) -> None:
    given = metadata(add_space_prefix=prefix)
    tokenizer = from_gguf(given, "m.gguf")
    assert not caplog.text
    for text in TEXTS:
        if not any(mark in text for mark in MARKS if mark != "\u2581"):
            assert tokenizer.encode(text, add_special=False) == merged(text, given, prefix=prefix), text


def test_runs_of_spaces_share_a_score_in_published_vocabularies(caplog: pytest.LogCaptureFixture) -> None:
    runs = ["\u2581" * count for count in (2, 4, 8, 16)]
    given = metadata(tokens=["<unk>", "<s>", "</s>", "\u2581", "x", "\u2581x", *runs], token_type=[2, 3, 3] + [1] * 7,
                     scores=[0.0, 0.0, 0.0, -9.0, -8.0, -1.0, *[-1e9] * 4])
    tokenizer = from_gguf(given, "m.gguf")
    assert not caplog.text
    for count in range(70):
        assert tokenizer.encode(" " * count + "x", add_special=False) == merged(" " * count + "x", given), count


def test_other_pieces_with_one_score_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    given = metadata()
    given["tokenizer.ggml.scores"] = [score // 200 for score in given["tokenizer.ggml.scores"]]
    from_gguf(given, "m.gguf")
    assert "m.gguf: tokenizer.ggml.scores: " in caplog.text


def test_text_comes_back_whole_and_streamed(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special=False, parse_special=False)
        stream = Detokenizer(tokenizer, at_start=True)
        expected = text.replace("\u2581", " ")
        assert "".join(stream.push([i]) for i in ids) + stream.flush() == expected
        assert tokenizer.decode(ids) == expected
        following = Detokenizer(tokenizer)
        assert following.push(tokenizer.encode_more(text, parse_special=False)) + following.flush() == expected


def test_special_tokens_begin_a_text_and_typed_ones_are_text(tokenizer: Tokenizer) -> None:
    fox = tokenizer.encode("fox", add_special=False)
    tool = tokenizer.id_of(TOOL)
    assert tokenizer.encode(f"fox{TOOL}fox</s>") == [BOS, *fox, tool, *fox, EOS]
    typed = tokenizer.encode(f"<s>{TOOL}</s><unk>", parse_special=False)
    assert not {BOS, EOS, 0} & set(typed[1:])
    assert tool in typed
    assert tokenizer.decode(typed[1:]).replace(" ", "") == f"<s>{TOOL}</s><unk>"


@pytest.mark.parametrize(("flags", "ids"), [
    ({}, [BOS]), ({"add_bos_token": False}, []), ({"add_eos_token": True}, [BOS, EOS]),
    ({"bos_token_id": None, "eos_token_id": None, "add_eos_token": True}, [BOS, EOS]),  # 1 and 2 unless given
])
def test_the_flags_of_the_file(flags: dict[str, Any], ids: list[int]) -> None:
    assert from_gguf(metadata(**flags), "m.gguf").encode("") == ids


def test_bytes_of_pieces(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(tokenizer.id_of("<0xE2>") or 0) == b"\xe2"
    assert tokenizer.token_bytes(tokenizer.id_of("\u2581") or 0) == b" "
    assert tokenizer.token_bytes(tokenizer.id_of(TOOL) or 0) == TOOL.encode()


@pytest.mark.parametrize(("key", "value"), [
    ("scores", None), ("scores", [0.0]), ("scores", ["high"] * 9), ("scores", [float("nan")] * 9), ("token_type", None),
    ("add_space_prefix", 1), ("unknown_token_id", "<unk>"),
])
def test_a_damaged_value_is_one_error_that_names_its_key(key: str, value: object) -> None:
    with pytest.raises(ModelFileError, match=rf"m.gguf: .*tokenizer\.ggml\.{key}"):
        from_gguf(metadata(**{key: value}), "m.gguf")


def test_pieces_too_long_to_take_apart_are_refused_soon() -> None:
    given = metadata()
    for key, value in (("tokens", "a" * 100_000), ("token_type", 1), ("scores", 0.0)):
        given[f"tokenizer.ggml.{key}"].append(value)
    started = time.process_time()
    with pytest.raises(ModelFileError, match="pieces are too long"):
        from_gguf(given, "m.gguf")
    assert time.process_time() - started < 5


SMALL = {"tokenizer.ggml.model": "t5",
         "tokenizer.ggml.tokens": ["<pad>", "</s>", "<unk>", "\u2581", "a", "\u2581b", "<s>"],
         "tokenizer.ggml.token_type": [3, 3, 2, 1, 1, 1, 3],
         "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -2.0, -3.0, -1.0, 0.0],
         "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.unknown_token_id": 2}


@pytest.mark.parametrize(("flags", "text", "ids"), [
    ({}, "a b", [4, 5, 1]),
    ({"add_space_prefix": True}, "a b", [3, 4, 5, 1]),
    ({"add_space_prefix": True}, "  a", [3, 3, 3, 4, 1]),
    ({"add_space_prefix": True, "remove_extra_whitespaces": True}, "  a   b ", [3, 4, 5, 1]),
    ({"add_eos_token": False}, "zz", [2]),
    ({"add_space_prefix": True}, "a</s>b", [3, 4, 1, 5, 1]),
])
def test_unigram_follows_the_flags_of_the_file(flags: dict[str, Any], text: str, ids: list[int]) -> None:
    tokenizer = from_gguf(SMALL | {f"tokenizer.ggml.{key}": value for key, value in flags.items()}, "m.gguf")
    assert tokenizer.encode(text) == ids
    assert 6 not in tokenizer.encode("<s>", parse_special=False)


@pytest.mark.parametrize("value", [[0, 0], [255] * 40, [4, 0, 0, 0, 0, 0, 0, 0, *b"x" * 300, 0]])
def test_a_damaged_map_of_characters_is_one_error(value: list[int]) -> None:
    with pytest.raises(ModelFileError, match=r"m.gguf: tokenizer\.ggml\.precompiled_charsmap"):
        from_gguf(SMALL | {"tokenizer.ggml.precompiled_charsmap": value}, "m.gguf")


WORDS = {"tokenizer.ggml.model": "bert",
         "tokenizer.ggml.tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581he", "llo", "\u2581É"],
         "tokenizer.ggml.token_type": [3, 3, 3, 3, 1, 1, 1], "tokenizer.ggml.unknown_token_id": 1,
         "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.seperator_token_id": 3}


def test_word_pieces_and_their_flags() -> None:
    tokenizer = from_gguf(WORDS, "m.gguf")
    assert tokenizer.encode("Hello hé") == [2, 4, 5, 4, 3]
    assert tokenizer.decode([4, 5, 4]) == "hello he"
    cased = from_gguf(WORDS | {"tokenizer.ggml.normalizer.lowercase": False}, "m.gguf")
    assert cased.encode("É hello He", add_special=False) == [6, 4, 5, 1]

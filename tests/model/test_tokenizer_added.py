"""Tokens that only the small files next to a tokenizer.json have: the ids are those that transformers 5.24 gives."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from drut.errors import ModelFileError
from drut.model.tokenizer import from_hf

CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
TEXT = "a<|tool|>b <x> ab"
PLAIN = [64, 27, 91, 83, 78, 78, 75, 91, 29, 65, 220, 27, 87, 29, 220, 256]
ADDED = [64, 259, 65, 220, 27, 87, 29, 220, 256]
BOTH = [64, 259, 65, 220, 260, 220, 256]


def token(text: str, *, special: bool = True, **flags: bool) -> dict[str, Any]:
    return {"content": text, "special": special, "lstrip": False, "rstrip": False, "single_word": False,
            "normalized": False, **flags}


def write(folder: Path, config: dict[str, Any] | None, added: list[AddedToken] = [],  # noqa: B006
          **files: object) -> Path:
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]
    made = Tokenizer(models.BPE({text: i for i, text in enumerate(words)}, [("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>"])
    made.add_tokens(added)
    made.save(str(folder / "tokenizer.json"))
    for name, content in {"tokenizer_config": config, **files}.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def by_id(**tokens: dict[str, Any]) -> dict[str, Any]:
    return CONFIG | {"added_tokens_decoder": {key.removeprefix("at"): value for key, value in tokens.items()}}


# The files, the ids of TEXT, and TEXT again with special tokens skipped.
CASES: dict[str, tuple[dict[str, Any], list[int], str]] = {
    "nowhere": ({"config": CONFIG}, PLAIN, TEXT),
    "listed by id": ({"config": by_id(at259=token("<|tool|>"))}, ADDED, "ab <x> ab"),
    "listed, not special": ({"config": by_id(at259=token("<|tool|>", special=False))}, ADDED, TEXT),
    "two, out of order": ({"config": by_id(at260=token("<x>"), at259=token("<|tool|>"))}, BOTH, "ab  ab"),
    "additional": ({"config": CONFIG | {"additional_special_tokens": ["<|tool|>"]}}, ADDED, "ab <x> ab"),
    "extra": ({"config": CONFIG | {"extra_special_tokens": ["<|tool|>"]}}, ADDED, "ab <x> ab"),
    "extra, named": ({"config": CONFIG | {"extra_special_tokens": {"tool_token": "<|tool|>"}}}, ADDED, "ab <x> ab"),
    "the map": ({"config": CONFIG, "special_tokens_map": {"additional_special_tokens": ["<|tool|>"]}}, ADDED,
                "ab <x> ab"),
    "the map alone": ({"config": None, "special_tokens_map": {"additional_special_tokens": ["<|tool|>"]}}, ADDED,
                      "ab <x> ab"),
    "added_tokens.json": ({"config": CONFIG, "added_tokens": {"<|tool|>": 259}}, ADDED, TEXT),
    "added_tokens.json alone": ({"config": None, "added_tokens": {"<|tool|>": 259}}, ADDED, TEXT),
    "the list before added_tokens.json": ({"config": by_id(at259=token("<x>")), "added_tokens": {"<|tool|>": 259}},
                                          [*PLAIN[:11], 259, 220, 256], "a<|tool|>b  ab"),
    "eos": ({"config": CONFIG | {"eos_token": "<|tool|>"}}, ADDED, "ab <x> ab"),
    "pad and unk": ({"config": CONFIG | {"pad_token": "<x>", "unk_token": "<|tool|>"}}, BOTH, "ab  ab"),
    "the map's eos": ({"config": CONFIG, "special_tokens_map": {"eos_token": "<|tool|>"}}, ADDED, "ab <x> ab"),
    "special in tokenizer.json only": (
        {"config": by_id(at259=token("<|tool|>", special=False)),
         "added": [AddedToken("<|tool|>", special=True, normalized=False)]}, ADDED, "ab <x> ab"),
    "special beside it only": (
        {"config": by_id(at259=token("<|tool|>")),
         "added": [AddedToken("<|tool|>", special=False, normalized=False)]}, ADDED, "ab <x> ab"),
    "a name of the model's own": ({"config": CONFIG | {"image_token": "<|tool|>"}}, ADDED, "ab <x> ab"),
    "a name of the map's own": ({"config": CONFIG, "special_tokens_map": {"image_token": "<|tool|>"}}, ADDED,
                                "ab <x> ab"),
    "names in an object": ({"config": CONFIG | {"model_specific_special_tokens": {"image": "<|tool|>"}}}, ADDED,
                           "ab <x> ab"),
    "listed as not special": ({"config": CONFIG | {"additional_special_tokens": [token("<|tool|>", special=False)]}},
                              ADDED, TEXT),
    "named, special nowhere": ({"config": CONFIG | {"pad_token": "<|tool|>"},
                                "added": [AddedToken("<|tool|>", special=False, normalized=False)]}, ADDED,
                               "ab <x> ab"),
    "an object of names and a list": ({"config": CONFIG | {"extra_special_tokens": {"x_token": "<x>"},
                                                           "additional_special_tokens": ["<|tool|>"]}},
                                      [*PLAIN[:1], 260, 65, 220, 259, 220, 256], "ab  ab"),
    "a word of the vocabulary": ({"config": CONFIG | {"additional_special_tokens": ["ab"]}}, PLAIN, "a<|tool|>b <x> "),
}


@pytest.mark.parametrize("case", CASES)
def test_added_tokens_are_those_of_transformers(tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str) -> None:
    files, ids, shown = CASES[case]
    tokenizer = from_hf(write(tmp_path, **files))
    assert tokenizer.encode(TEXT, add_special=False) == ids
    assert tokenizer.decode(ids, skip_special=False) == TEXT
    assert tokenizer.decode(ids) == shown
    lacked = case != "nowhere" and "added" not in files
    assert lacked == ("tokenizer.json lacks added tokens" in caplog.text)


@pytest.mark.parametrize("files", [
    {"config": CONFIG | {"extra_special_tokens": ["<x>"], "additional_special_tokens": ["<|tool|>"]}},
    {"config": CONFIG | {"additional_special_tokens": ["<x>"]},
     "special_tokens_map": {"additional_special_tokens": ["<x>", "<|tool|>"]}},
    {"config": CONFIG | {"extra_special_tokens": ["<x>"]},
     "special_tokens_map": {"additional_special_tokens": ["<|tool|>"]}},
])
def test_of_several_lists_one_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture, files: dict[str, Any]) -> None:
    assert from_hf(write(tmp_path, **files)).encode(TEXT, add_special=False) == [*PLAIN[:11], 259, 220, 256]
    assert "additional_special_tokens are ignored, because another list has precedence: '<|tool|>'" in caplog.text


def test_many_tokens_are_added_in_time_that_grows_with_their_number(tmp_path: Path) -> None:
    names = [f"<{i}>" for i in range(30_000)]
    config = by_id(**{f"at{259 + i}": token(name) for i, name in enumerate(names[:15_000])})
    start = time.process_time()
    tokenizer = from_hf(write(tmp_path, config | {"additional_special_tokens": names[15_000:]}))
    assert time.process_time() - start < 5  # to compare each with all others takes minutes
    assert tokenizer.encode("<29999>", add_special=False) == [259 + 29_999]


def test_special_tokens_of_the_map_count_before_the_configuration_unless_that_lists_ids(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = {"eos_token": "<s>"}
    assert from_hf(write(tmp_path, CONFIG, special_tokens_map=other)).eos_token == "<s>"
    assert "eos_token is '<s>' in special_tokens_map.json and '</s>' in tokenizer_config.json" in caplog.text
    caplog.clear()
    listed = by_id(at258=token("</s>"))
    assert from_hf(write(tmp_path, listed, special_tokens_map=other)).eos_token == "</s>"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("flag", ["lstrip", "rstrip"])
def test_flags_beside_tokenizer_json_count(tmp_path: Path, flag: str) -> None:
    added = [AddedToken("<|tool|>", special=True, normalized=False)]
    tokenizer = from_hf(write(tmp_path, by_id(at259=token("<|tool|>", **{flag: True})), added=added))
    expected = {"lstrip": [64, 259, 220, 65], "rstrip": [64, 220, 259, 65]}
    assert tokenizer.encode("a <|tool|> b", add_special=False) == expected[flag]


@pytest.mark.parametrize("files", [
    {"config": by_id(at300=token("<|tool|>"))},
    {"config": by_id(at10=token("<|tool|>"))},
    {"config": by_id(at257=token("<|tool|>"))},
    {"config": CONFIG, "added_tokens": {"<|tool|>": 300}},
])
def test_an_id_that_tokenizer_json_does_not_lead_to_is_refused(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError, match=r"'<\|tool\|>' has id \d+ in a file next to .* id 259"):
        from_hf(write(tmp_path, **files))


@pytest.mark.parametrize("files", [
    {"config": CONFIG | {"added_tokens_decoder": ["<x>"]}},
    {"config": CONFIG | {"added_tokens_decoder": {"one": token("<x>")}}},
    {"config": CONFIG | {"added_tokens_decoder": {"259": "<x>" * 0}}},
    {"config": CONFIG | {"added_tokens_decoder": {"9" * 5000: token("<x>")}}},
    {"config": by_id(at259=token(""))},
    {"config": by_id(at259=token("<x>", lstrip="no"))},  # type: ignore[arg-type]
    {"config": CONFIG | {"additional_special_tokens": [5]}},
    {"config": CONFIG, "added_tokens": {"<x>": "259"}},
])
def test_damaged_entries_are_one_error(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError) as caught:
        from_hf(write(tmp_path, **files))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)

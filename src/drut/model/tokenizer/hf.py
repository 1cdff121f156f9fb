"""Builds a tokenizer from a HF-style directory: `tokenizer.json` and the small files next to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from drut.errors import ModelFileError
from drut.model.tokenizer.chat import DEFAULT, hf_templates
from drut.model.tokenizer.growth import check_growth
from drut.model.tokenizer.hf_added import add_missing, special_names, text_of
from drut.model.tokenizer.patterns import check_patterns
from drut.model.tokenizer.pieces import pieces_of, state_of
from drut.model.tokenizer.small_files import read_object, read_text
from drut.model.tokenizer.tokenizer import TextRules, Tokenizer, encode, library
from drut.model.weights.metadata import optional

_MAX_VOCABULARY_BYTES = 256 << 20


def from_hf(directory: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer of a model directory.

    Reads `tokenizer.json` and, if present, `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`,
    `generation_config.json` (further ids that end an output) and files with chat templates. Raises ModelFileError,
    which names the file, if one is missing or damaged; UnsupportedError for an unknown decoder, or a pattern that may
    take unbounded time.
    """
    directory = Path(directory)
    backend = _backend(directory / "tokenizer.json")
    path = str(directory / "tokenizer.json")
    normalizer, decoder = state_of(backend.normalizer), state_of(backend.decoder)
    check_patterns([normalizer, state_of(backend.pre_tokenizer), decoder], path)
    check_growth(normalizer, path)
    pieces = pieces_of(decoder, path)
    special = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    config = read_object(directory / "tokenizer_config.json")
    names = special_names(config, read_object(directory / "special_tokens_map.json"), str(directory))
    add_missing(backend, names, read_object(directory / "added_tokens.json"), str(directory))
    added = sorted(backend.get_added_tokens_decoder().items())
    for token_id, token in added:
        token.special |= token_id in special  # a token that one file makes special stays special
    return Tokenizer(backend, added, pieces, _rules(directory, backend, names), str(directory))


def _backend(path: Path) -> tokenizers.Tokenizer:
    text = read_text(path, _MAX_VOCABULARY_BYTES)
    if text is None:
        raise ModelFileError(f"{path}: no such file")
    with library(str(path)):
        backend = tokenizers.Tokenizer.from_str(text)
    backend.no_truncation()
    backend.no_padding()
    return backend


def _rules(directory: Path, backend: tokenizers.Tokenizer, config: dict[str, Any]) -> TextRules:
    config_path = directory / "tokenizer_config.json"
    bos_id, eos_id = (_token_id(config, key, backend, config_path) for key in ("bos_token", "eos_token"))
    eos_ids = _eos(directory / "generation_config.json") or _eos(directory / "config.json")
    prefix, suffix = _surroundings(backend, str(directory / "tokenizer.json"))
    add_bos = optional(config, "add_bos_token", bool, config_path)
    add_eos = optional(config, "add_eos_token", bool, config_path)
    templates = hf_templates(directory, config.get("chat_template"))
    return TextRules(
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=eos_ids if eos_id is None else eos_ids | {eos_id},
        prefix=_switched(prefix, bos_id, add_bos),
        suffix=_switched(suffix, eos_id, add_eos),
        chat_template=templates.pop(DEFAULT, None),
        named_templates=templates,
    )


def _surroundings(backend: tokenizers.Tokenizer, path: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that the post-processor puts before and after a text."""
    bare = encode(backend, "a", path)
    full = encode(backend, "a", path, add_special_tokens=True)
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    return (), ()


def _switched(ids: tuple[int, ...], token_id: int | None, wanted: bool | None) -> tuple[int, ...]:
    """Returns `ids` with `token_id` added or removed if the configuration has a setting for it."""
    if token_id is None or wanted is None or wanted == (token_id in ids):
        return ids
    return (token_id, *ids) if wanted else tuple(i for i in ids if i != token_id)


def _token_id(
    names: Mapping[str, object], key: str, backend: tokenizers.Tokenizer, path: Path
) -> int | None:
    """Returns the id of the token that `key` names, as a string or as an object with `content`."""
    token = text_of(names.get(key))
    if token is None:
        return None
    token_id: int | None = backend.token_to_id(token)
    if token_id is None:
        raise ModelFileError(f"{path}: {key} {token[:40]!r} is not in the vocabulary")
    return token_id


def _eos(path: Path) -> frozenset[int]:
    """Returns the ids that end an output; a file may have one or several."""
    whole = read_object(path)
    text = whole.get("text_config")  # only in multimodal models
    value = whole.get("eos_token_id", text.get("eos_token_id") if isinstance(text, dict) else None)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(i) is int for i in ids):
        raise ModelFileError(f"{path}: eos_token_id must be an integer or a list of integers")
    return frozenset(ids)



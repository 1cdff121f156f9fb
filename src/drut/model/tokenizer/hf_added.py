"""Added tokens that are missing in `tokenizer.json` and present in the small files next to it, as in transformers 5."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken

from drut.errors import ModelFileError
from drut.model.notices import warn_once
from drut.model.tokenizer.tokenizer import library

Objects = Mapping[str, Any]
_ID = re.compile("[0-9]{1,10}")
_BY_ID = "added_tokens_decoder"
_CONFIG, _MAP, _ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_EXTRA, _OLDER_EXTRA = "extra_special_tokens", "additional_special_tokens"
_NAMED_EXTRA = "model_specific_special_tokens"  # an object with tokens by name
_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


def special_names(config: Objects, mapped: Objects, where: str) -> dict[str, Any]:
    """Returns the configuration merged with the special tokens of the map.

    The map is used only if the configuration has no list of tokens by id, and then has precedence. Further special
    tokens without a name, which several keys may list, are collected under one key. Differences and ignored entries
    are logged.
    """
    if _BY_ID in config:
        mapped = {}
    for key in filter(_is_name, mapped):
        theirs, ours = (text_of(names.get(key)) for names in (mapped, config))
        if theirs is not None and ours is not None and theirs != ours:
            warn_once(f"{where}: {key} is {theirs!r} in {_MAP} and {ours!r} in {_CONFIG}: the first is used")
    named = {**_object(config, _NAMED_EXTRA), **_object(config, _EXTRA), **_object(mapped, _EXTRA)}
    return {**config, **mapped, _NAMED_EXTRA: named, _EXTRA: _extra(config, mapped, where), _OLDER_EXTRA: None}


def _extra(config: Objects, mapped: Objects, where: str) -> list[object]:
    """Returns further special tokens. The older key is used if there is no list under the newer one, and the map's if
    the configuration has neither. The map's list under the newer key is added."""
    newer, older, mapped_older = config.get(_EXTRA), config.get(_OLDER_EXTRA), mapped.get(_OLDER_EXTRA)
    listed = isinstance(newer, list) and newer
    used, unused = (_items(newer), _items(older)) if listed else (_items(older), [])
    used = used + _items(mapped.get(_EXTRA))
    if used or not config.keys().isdisjoint((_EXTRA, _OLDER_EXTRA)):
        unused = unused + _items(mapped_older)
    else:
        used = _items(mapped_older)
    texts = set(map(text_of, used))
    left = [text for token in unused if (text := text_of(token)) and text not in texts]
    if left:
        warn_once(f"{where}: {_OLDER_EXTRA} are ignored, because another list has precedence: {_shown(left)}")
    return used


def add_missing(backend: tokenizers.Tokenizer, names: Objects, added: Objects, where: str) -> None:
    """Adds to `backend` the tokens that only `names` (from `special_names`) and `added` (added_tokens.json) have, and
    makes tokens with a name special.

    Raises ModelFileError, which names the token, if a token would not get the id that its file gives.
    """
    known = backend.get_added_tokens_decoder()
    contents = {token.content for token in known.values()}
    named, extra = _named(names, where), _by_text(_special(token, _EXTRA, where) for token in _items(names.get(_EXTRA)))
    listed = _listed(names, added, named.keys() | extra.keys(), where)
    missing = {token.content: token for token_id, token in listed if repr(token) != repr(known.get(token_id))}
    for text, token in (named | extra).items():
        if text not in contents:
            missing.setdefault(text, token)
    if _BY_ID not in names:
        missing = {token.content: token for token in known.values() if token.content in named} | missing
    for text in missing.keys() & named.keys():
        missing[text].special = True
    if new := [text for text in missing if text not in contents]:
        warn_once(f"{where}: tokenizer.json lacks added tokens that the files next to it have: {_shown(new)}")
    with library(f"{where}: added tokens"):
        backend.add_tokens(list(missing.values()))
    for token_id, token in listed:
        found = backend.token_to_id(token.content)
        if found != token_id:
            raise ModelFileError(f"{where}: token {token.content[:40]!r} has id {token_id} in a file next to "
                                 f"tokenizer.json, which gives it id {found}")


def _is_name(key: str) -> bool:
    """Whether a key names one token, as `eos_token` and the `image_token` of a model do."""
    return key.endswith("_token")


def _named(names: Objects, where: str) -> dict[str, AddedToken]:
    """Returns the tokens that have a name, by their text; names that any model may have come first."""
    own = {key: value for key, value in names.items() if _is_name(key) and key not in _NAMED and text_of(value)}
    by_name = {**{key: names.get(key) for key in _NAMED}, **own, **_object(names, _NAMED_EXTRA)}
    return _by_text(_special(value, key, where) for key, value in by_name.items())


def _by_text(tokens: Iterable[AddedToken | None]) -> dict[str, AddedToken]:
    return {token.content: token for token in tokens if token is not None}


def _object(names: Objects, key: str) -> Objects:
    value = names.get(key)
    return value if isinstance(value, Mapping) else {}


def _shown(texts: list[str]) -> str:
    return ", ".join(repr(text[:40]) for text in texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")


def text_of(token: object) -> str | None:
    """Returns the text of a token, which is a string or an object with `content`."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else None


def _listed(names: Objects, added: Objects, special: set[str], where: str) -> list[tuple[int, AddedToken]]:
    """Returns the tokens that are listed by id in the configuration, or else in added_tokens.json."""
    listed: dict[int, AddedToken] = {}
    if _BY_ID in names:
        entries = names[_BY_ID]
        if not isinstance(entries, Mapping):
            raise ModelFileError(f"{where}: added_tokens_decoder must be an object")
        for key, token in entries.items():
            if not _ID.fullmatch(key) or not isinstance(token, Mapping) or text_of(token) is None:
                raise ModelFileError(f"{where}: added_tokens_decoder: {key[:40]!r} is not an id with a token")
            listed[int(key)] = _token(token, f"{where}: added_tokens_decoder: {key}")
    else:
        for text, token_id in added.items():
            if type(token_id) is not int or not text:
                raise ModelFileError(f"{where}: {_ADDED}: {text[:40]!r} has no id")
            listed[token_id] = AddedToken(text, normalized=text not in special, special=text in special)
    return sorted(listed.items())


def _special(token: object, key: str, where: str) -> AddedToken | None:
    if token is None:
        return None
    if not text_of(token):
        raise ModelFileError(f"{where}: {key} must be a string, or an object with one as content")
    return AddedToken(token, special=True) if isinstance(token, str) else _token(token, f"{where}: {key}", special=True)


def _token(token: Any, what: str, **default: bool) -> AddedToken:
    flags = default | {key: token[key] for key in _FLAGS if key in token}
    if not token["content"] or not all(type(flag) is bool for flag in flags.values()):
        raise ModelFileError(f"{what}: a token has no text, or a flag that is neither true nor false")
    return AddedToken(token["content"], **flags)


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []

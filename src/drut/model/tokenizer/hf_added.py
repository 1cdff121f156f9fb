"""Added tokens that the small files beside a `tokenizer.json` know and it does not, as transformers 5 adds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken

from drut.errors import ModelFileError
from drut.model.notices import warn_once
from drut.model.tokenizer.tokenizer import library

Objects = Mapping[str, Any]
_CONFIG, _MAP, _ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


def special_names(config: Objects, mapped: Objects, where: str) -> dict[str, Any]:
    """The configuration, with the special tokens of the map. The map counts where the configuration lists no tokens
    by id, and then before it: the log names what it changes."""
    if "added_tokens_decoder" in config:
        return dict(config)
    for key in _NAMED:
        theirs, ours = (text_of(names.get(key)) for names in (mapped, config))
        if theirs is not None and ours is not None and theirs != ours:
            warn_once(f"{where}: {key} is {theirs!r} in {_MAP} and {ours!r} in {_CONFIG}: the first counts")
    return {**config, **mapped}


def add_missing(backend: tokenizers.Tokenizer, names: Objects, added: Objects, where: str) -> None:
    """Adds to `backend` the tokens that `names` (of `special_names`) and `added` (added_tokens.json) have more.

    ModelFileError naming a token that would not get the id that its file says.
    """
    known = backend.get_added_tokens_decoder()
    contents = {token.content for token in known.values()}
    specials = [token for key in _NAMED if (token := _special(names.get(key), key, where)) is not None]
    extra = [token for key in _LISTS for value in _items(names.get(key))
             if (token := _special(value, key, where)) is not None]
    listed = _listed(names, added, {token.content for token in (*specials, *extra)}, where)
    missing = [token for token_id, token in listed if repr(token) != repr(known.get(token_id))]
    named = {token.content: token for token in (*specials, *extra) if token.content not in contents}
    missing += [token for text, token in named.items() if text not in {token.content for token in missing}]
    new = [token.content for token in missing if token.content not in contents]
    if new:
        shown = ", ".join(repr(text[:40]) for text in new[:8]) + (f" and {len(new) - 8} more" if len(new) > 8 else "")
        warn_once(f"{where}: tokenizer.json lacks added tokens that the files beside it name: {shown}")
    with library(f"{where}: added tokens"):
        backend.add_tokens(missing)
    for token_id, token in listed:
        if backend.token_to_id(token.content) != token_id:
            found = backend.token_to_id(token.content)
            raise ModelFileError(f"{where}: token {token.content[:40]!r} has id {token_id} beside tokenizer.json, "
                                 f"which leads to {found}")


def text_of(token: object) -> str | None:
    """The text of a token that is given as a string or as an object with `content`."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else None


def _listed(names: Objects, added: Objects, special: set[str], where: str) -> list[tuple[int, AddedToken]]:
    """The tokens that are listed by id: those of the configuration, or where it lists none, of added_tokens.json."""
    listed: dict[int, AddedToken] = {}
    if "added_tokens_decoder" in names:
        entries = names["added_tokens_decoder"]
        if not isinstance(entries, Mapping):
            raise ModelFileError(f"{where}: added_tokens_decoder must be an object")
        for key, token in entries.items():
            if not key.isascii() or not key.isdigit() or not isinstance(token, Mapping) or text_of(token) is None:
                raise ModelFileError(f"{where}: added_tokens_decoder: {key[:40]!r} is no id with a token")
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


def _token(token: Any, what: str, **fixed: bool) -> AddedToken:
    flags = {key: token[key] for key in _FLAGS if key in token} | fixed
    if not token["content"] or not all(type(flag) is bool for flag in flags.values()):
        raise ModelFileError(f"{what}: a token has no text, or a flag that is neither true nor false")
    return AddedToken(token["content"], **flags)


def _items(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()

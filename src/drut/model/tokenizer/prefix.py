"""Removes from a tokenizer's normalizer and pre-tokenizer the space that they put in front of a text."""

from __future__ import annotations

import json
from typing import Any

import tokenizers
from tokenizers import models
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from drut.model.tokenizer.pieces import state_of

_Parts = tuple[Normalizer | None, PreTokenizer | None]
_OFF: dict[str, dict[str, Any]] = {"Metaspace": {"prepend_scheme": "never"}, "ByteLevel": {"add_prefix_space": False}}


def without_prefix(backend: tokenizers.Tokenizer) -> _Parts | None:
    """Returns both parts without the space; None if they add none."""
    given = state_of(backend.normalizer), state_of(backend.pre_tokenizer)
    normalizer, pre_tokenizer = map(_without, given)
    if (normalizer, pre_tokenizer) == given:
        return None
    state = json.loads(tokenizers.Tokenizer(models.BPE()).to_str())
    made = tokenizers.Tokenizer.from_str(json.dumps(state | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}))
    return made.normalizer, made.pre_tokenizer


def _without(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns a part's state without the step that adds a space; None if no step remains."""
    if step is None or step["type"] == "Prepend":
        return None
    inner: dict[str, Any] = {key: [kept for one in step[key] if (kept := _without(one))]
             for key in ("normalizers", "pretokenizers") if key in step}
    return step | inner | _OFF.get(step["type"], {})

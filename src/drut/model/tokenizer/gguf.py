"""A tokenizer rebuilt from GGUF metadata (keys `tokenizer.*`): byte-level BPE."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from drut.errors import ModelFileError, UnsupportedError
from drut.model.tokenizer.chat import DEFAULT, gguf_templates
from drut.model.tokenizer.pieces import ByteLevelPieces, byte_alphabet
from drut.model.tokenizer.tokenizer import TextRules, Tokenizer, library
from drut.model.weights.metadata import optional, require, require_list

# Values of `tokenizer.ggml.token_type`.
_UNKNOWN, _CONTROL, _USER_DEFINED, _LAST_TYPE = 2, 3, 4, 6


@dataclass(frozen=True)
class _Splitting:
    """How text is cut into words before merging, by the name in `tokenizer.ggml.pre`.

    Without `pattern` it is cut by the regular expression of GPT-2, which the library holds.
    """

    pattern: str | None = None
    single_digits: bool = False
    nfc: bool = False
    whole_words: bool = False  # a word that is in the vocabulary is not built by merges
    adds_bos: bool = False  # unless the file says otherwise


def _pattern(digits: str) -> str:
    """Words with one leading mark, `digits`, runs of marks with their line ends, white space."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_SPLITTINGS = {
    "gpt-2": _Splitting(),
    "smollm": _Splitting(single_digits=True),
    "llama-bpe": _Splitting(_pattern(r"\p{N}{1,3}"), whole_words=True, adds_bos=True),
    "qwen2": _Splitting(_pattern(r"\p{N}"), nfc=True),
}


def from_gguf(metadata: Mapping[str, object], name: str) -> Tokenizer:
    """The tokenizer of a GGUF file called `name`, out of its metadata.

    Raises UnsupportedError naming a kind of tokenizer or `pre` that is not known, ModelFileError naming the
    key whose value is missing or damaged.
    """
    model = require(metadata, "tokenizer.ggml.model", str, name)
    if model != "gpt2":
        raise UnsupportedError(f"{name}: tokenizer {model[:40]!r} is not supported (supported: gpt2)")
    pre = optional(metadata, "tokenizer.ggml.pre", str, name)
    if pre not in _SPLITTINGS:
        said = "no tokenizer.ggml.pre" if pre is None else f"tokenizer.ggml.pre {pre[:40]!r}"
        raise UnsupportedError(f"{name}: {said} is not supported (supported: {', '.join(_SPLITTINGS)})")
    if optional(metadata, "tokenizer.ggml.add_space_prefix", bool, name, False):
        raise UnsupportedError(f"{name}: tokenizer.ggml.add_space_prefix is not supported with gpt2")
    splitting = _SPLITTINGS[pre]
    tokens = require_list(metadata, "tokenizer.ggml.tokens", str, name)
    added = _added_tokens(metadata, tokens, name)
    backend = tokenizers.Tokenizer(_bpe(metadata, tokens, {i for i, _ in added}, splitting, name))
    if splitting.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(splitting)
    backend.decoder = decoders.ByteLevel()  # for others that read what `to_json` writes
    with library(f"{name}: tokenizer.ggml.tokens"):
        backend.add_tokens([token for _, token in added])
    rules = _rules(metadata, splitting, len(tokens), name)
    return Tokenizer(backend, added, ByteLevelPieces(byte_alphabet()), rules, name)


def _added_tokens(
    metadata: Mapping[str, object], tokens: list[str], name: str
) -> list[tuple[int, AddedToken]]:
    """Control and unknown tokens, which are special, and user-defined ones, which are only never split."""
    types = require_list(metadata, "tokenizer.ggml.token_type", int, name)
    if len(types) != len(tokens):
        raise ModelFileError(
            f"{name}: tokenizer.ggml.token_type has {len(types)} entries, tokenizer.ggml.tokens {len(tokens)}"
        )
    added = []
    for i, kind in enumerate(types):
        if not 0 <= kind <= _LAST_TYPE:
            raise ModelFileError(f"{name}: tokenizer.ggml.token_type: token {i} has the unknown type {kind}")
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED):
            if not tokens[i]:
                raise ModelFileError(f"{name}: tokenizer.ggml.tokens: token {i} is empty")
            added.append((i, AddedToken(tokens[i], special=kind != _USER_DEFINED, normalized=False)))
    return added


def _bpe(
    metadata: Mapping[str, object], tokens: list[str], added: set[int], splitting: _Splitting, name: str
) -> models.BPE:
    """The merging model. Added tokens that end the vocabulary stay out of it, so no word matches them."""
    end = len(tokens)
    while end - 1 in added:
        end -= 1
    vocab = {token: i for i, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        twice = next(token for i, token in enumerate(tokens) if vocab[token] != i)
        raise ModelFileError(f"{name}: tokenizer.ggml.tokens holds {twice[:40]!r} twice")
    for token in tokens[end:]:
        del vocab[token]
    lines = require_list(metadata, "tokenizer.ggml.merges", str, name)
    try:
        merges = [(left, right) for left, right in map(str.split, lines, repeat(" "))]
    except ValueError:
        i = next(i for i, line in enumerate(lines) if line.count(" ") != 1)
        said = f"entry {i}, {lines[i][:40]!r}, is not two parts"
        raise ModelFileError(f"{name}: tokenizer.ggml.merges: {said}") from None
    with library(f"{name}: tokenizer.ggml.merges"):
        return models.BPE(vocab, merges, ignore_merges=splitting.whole_words)


def _pre_tokenizer(splitting: _Splitting) -> pre_tokenizers.PreTokenizer:
    if splitting.pattern is not None:
        first: pre_tokenizers.PreTokenizer = pre_tokenizers.Split(Regex(splitting.pattern), "isolated")
    elif splitting.single_digits:
        first = pre_tokenizers.Digits(individual_digits=True)
    else:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splitting.pattern is None)
    return pre_tokenizers.Sequence([first, byte_level])


def splitting_of(state: Mapping[str, Any]) -> str | None:
    """The name in `tokenizer.ggml.pre` of how a `tokenizer.json` cuts text; None where none of those known does."""
    for name, splitting in _SPLITTINGS.items():
        like = tokenizers.Tokenizer(models.BPE())
        like.pre_tokenizer = _pre_tokenizer(splitting)
        if splitting.nfc:
            like.normalizer = normalizers.NFC()
        made = json.loads(like.to_str())
        same = all(_plain(made[key]) == _plain(state.get(key)) for key in ("normalizer", "pre_tokenizer"))
        if same and bool(state["model"].get("ignore_merges")) == splitting.whole_words:
            return name
    return None


def _plain(step: Any) -> Any:
    """A step of a tokenizer without what changes no token: offsets."""
    if isinstance(step, dict):
        return {key: _plain(value) for key, value in step.items() if key != "trim_offsets"}
    return [_plain(item) for item in step] if isinstance(step, list) else step


def _rules(metadata: Mapping[str, object], splitting: _Splitting, vocab_size: int, name: str) -> TextRules:
    def special(kind: str) -> int | None:
        key = f"tokenizer.ggml.{kind}_token_id"
        token_id = optional(metadata, key, int, name)
        if token_id is not None and not 0 <= token_id < vocab_size:
            raise ModelFileError(f"{name}: {key} {token_id} is outside the vocabulary of {vocab_size}")
        return token_id

    bos_id, eos_id = special("bos"), special("eos")
    ends = (eos_id, special("eot"), special("eom"))
    add_bos = optional(metadata, "tokenizer.ggml.add_bos_token", bool, name, splitting.adds_bos)
    add_eos = optional(metadata, "tokenizer.ggml.add_eos_token", bool, name, False)
    templates = gguf_templates(metadata, name)
    return TextRules(
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=frozenset(i for i in ends if i is not None),
        prefix=(bos_id,) if add_bos and bos_id is not None else (),
        suffix=(eos_id,) if add_eos and eos_id is not None else (),
        chat_template=templates.pop(DEFAULT, None),
        named_templates=templates,
    )

"""The entries of a GGUF file's vocabulary, for all kinds of tokenizers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import tokenizers
from tokenizers import AddedToken, models

from drut.errors import ModelFileError
from drut.model.tokenizer.pieces import Pieces
from drut.model.weights.metadata import optional, require_list

# Values of `tokenizer.ggml.token_type`.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_LAST_TYPE = 6


@dataclass(frozen=True)
class GGUFVocabulary:
    """The vocabulary: `tokens` by id with their `types`; `added` tokens are matched in text before all others.

    Unused entries at the end, which pad the vocabulary to a model's rows, are left out.
    """

    metadata: Mapping[str, object]
    name: str
    tokens: list[str]
    types: list[int]
    added: list[tuple[int, AddedToken]]

    @property
    def model_size(self) -> int:
        """The number of entries of the model that splits words, without added tokens at the end of the vocabulary."""
        added = {i for i, _ in self.added}
        end = len(self.tokens)
        while end - 1 in added:
            end -= 1
        return end

    def scores(self) -> list[float]:
        key = "tokenizer.ggml.scores"
        scores = require_list(self.metadata, key, float, self.name)
        if len(scores) < len(self.tokens):
            raise ModelFileError(f"{self.name}: {key} has {len(scores)} entries for {len(self.tokens)} tokens")
        return scores

    def token_of(self, kind: str, default: int) -> str | None:
        """Returns the text of the token that a key, as `unknown`, names; None if the id is outside the vocabulary."""
        token_id = optional(self.metadata, f"tokenizer.ggml.{kind}_token_id", int, self.name, default)
        return self.tokens[token_id] if 0 <= token_id < len(self.tokens) else None


@dataclass(frozen=True)
class Built:
    """The result of building one kind of tokenizer, with its defaults for keys that the file omits."""

    backend: tokenizers.Tokenizer
    pieces: Pieces
    literal: models.Model | None = None  # the model for texts in which special tokens are ordinary text
    adds_bos: bool = False
    always_adds_bos: bool = False
    adds_eos: bool = False
    default_ids: dict[str, int] = field(default_factory=dict)
    wraps: tuple[str, str] | None = None  # tokens around a text instead of BOS and EOS


def read_vocabulary(metadata: Mapping[str, object], name: str) -> GGUFVocabulary:
    """Returns the vocabulary; raises ModelFileError, which names the key, if a value is missing or damaged."""
    tokens = require_list(metadata, "tokenizer.ggml.tokens", str, name)
    types = require_list(metadata, "tokenizer.ggml.token_type", int, name)
    if len(types) != len(tokens):
        raise ModelFileError(
            f"{name}: tokenizer.ggml.token_type has {len(types)} entries, tokenizer.ggml.tokens {len(tokens)}"
        )
    for i, kind in enumerate(types):
        if not 0 <= kind <= _LAST_TYPE:
            raise ModelFileError(f"{name}: tokenizer.ggml.token_type: token {i} has the unknown type {kind}")
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        twice = next(token for i, token in enumerate(tokens) if ids[token] != i)
        raise ModelFileError(f"{name}: tokenizer.ggml.tokens has {twice[:40]!r} twice")
    while types and types[-1] == UNUSED:
        types.pop()
        tokens.pop()
    return GGUFVocabulary(metadata, name, tokens, types, _added(metadata, tokens, types, name))


def _added(
    metadata: Mapping[str, object], tokens: list[str], types: list[int], name: str
) -> list[tuple[int, AddedToken]]:
    """Returns control and unknown tokens, which are special, and user-defined tokens, which are only never split."""
    added = []
    strips = _strips(metadata, name)
    for i, (text, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind in (UNKNOWN, CONTROL, USER_DEFINED):
            if not text:
                raise ModelFileError(f"{name}: tokenizer.ggml.tokens: token {i} is empty")
            token = AddedToken(text, special=kind != USER_DEFINED, normalized=False, **strips.of(text))
            added.append((i, token))
    return added


@dataclass(frozen=True)
class _Strips:
    """Whether added tokens absorb adjacent white space. GGUF has no key for it, so the model's name decides."""

    left: frozenset[str] = frozenset()
    right_but: frozenset[str] | None = None

    def of(self, text: str) -> dict[str, bool]:
        right = self.right_but is not None and text not in self.right_but
        return {"lstrip": text in self.left, "rstrip": right}


def _strips(metadata: Mapping[str, object], name: str) -> _Strips:
    model = optional(metadata, "general.name", str, name, "").lower()
    architecture = optional(metadata, "general.architecture", str, name, "")
    pre = optional(metadata, "tokenizer.ggml.pre", str, name, "")
    if pre in ("jina-v2-de", "jina-v2-es", "jina-v2-code") or architecture in ("nomic-bert-moe", "jina-bert-v3"):
        return _Strips(left=frozenset(["<mask>"]))
    if "phi-3" in model or "phi3" in model:
        return _Strips(right_but=frozenset(["<unk>", "<s>", "<|endoftext|>"]))
    return _Strips(left=frozenset(["[MASK]"])) if "modern-bert" in model else _Strips()

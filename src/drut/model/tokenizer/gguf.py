"""Builds a tokenizer from GGUF metadata (keys `tokenizer.*`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drut.errors import ModelFileError, UnsupportedError
from drut.model.tokenizer.chat import DEFAULT, gguf_templates
from drut.model.tokenizer.gguf_bpe import byte_level, gemma, scored
from drut.model.tokenizer.gguf_vocabulary import Built, GGUFVocabulary, read_vocabulary
from drut.model.tokenizer.gguf_words import unigram, word_piece
from drut.model.tokenizer.tokenizer import TextRules, Tokenizer
from drut.model.weights.metadata import optional, require

_MODELS: dict[str, Callable[[GGUFVocabulary], Built]] = {
    "gpt2": byte_level, "gemma4": gemma, "llama": scored, "bert": word_piece, "t5": unigram,
}


def from_gguf(metadata: Mapping[str, object], name: str) -> Tokenizer:
    """Returns the tokenizer of a GGUF file called `name`, built from its metadata.

    Raises UnsupportedError, which names an unknown kind of tokenizer or `pre`, and ModelFileError, which names the key
    whose value is missing or damaged.
    """
    model = require(metadata, "tokenizer.ggml.model", str, name)
    if model not in _MODELS:
        known = ", ".join(_MODELS)
        raise UnsupportedError(f"{name}: tokenizer {model[:40]!r} is not supported (supported: {known})")
    vocabulary = read_vocabulary(metadata, name)
    built = _MODELS[model](vocabulary)
    rules = _rules(vocabulary, built)
    return Tokenizer(built.backend, vocabulary.added, built.pieces, rules, name, literal=built.literal)


def _rules(vocabulary: GGUFVocabulary, built: Built) -> TextRules:
    metadata, name = vocabulary.metadata, vocabulary.name

    def special(kind: str) -> int | None:
        key = f"tokenizer.ggml.{kind}_token_id"
        token_id = optional(metadata, key, int, name)
        if token_id is not None and not 0 <= token_id < len(vocabulary.tokens):
            raise ModelFileError(f"{name}: {key} {token_id} is outside the vocabulary of {len(vocabulary.tokens)}")
        return token_id

    def named(kind: str) -> int | None:
        found, default = special(kind), built.default_ids.get(kind)
        return found if found is not None or default is None or default >= len(vocabulary.tokens) else default

    bos_id, eos_id = named("bos"), named("eos")
    ends = (eos_id, special("eot"), special("eom"))
    add_bos = built.always_adds_bos or optional(metadata, "tokenizer.ggml.add_bos_token", bool, name, built.adds_bos)
    add_eos = optional(metadata, "tokenizer.ggml.add_eos_token", bool, name, built.adds_eos)
    first, last = (bos_id, eos_id) if built.wraps is None else map(named, built.wraps)
    templates = gguf_templates(metadata, name)
    return TextRules(
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=frozenset(i for i in ends if i is not None),
        prefix=(first,) if add_bos and first is not None else (),
        suffix=(last,) if add_eos and last is not None else (),
        chat_template=templates.pop(DEFAULT, None),
        named_templates=templates,
    )

"""Tokenizers of GGUF files that split words: WordPiece (`bert`) and SentencePiece's unigram (`t5`)."""

from __future__ import annotations

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from drut.model.tokenizer.gguf_vocabulary import CONTROL, NORMAL, UNKNOWN, Built, GGUFVocabulary
from drut.model.tokenizer.growth import check_chars_map
from drut.model.tokenizer.pieces import TextPieces
from drut.model.tokenizer.splitting import OUTER_SPACES, SPACE
from drut.model.tokenizer.tokenizer import library
from drut.model.weights.metadata import optional, require_list

_INSIDE = "##"
_CHARS_MAP = "tokenizer.ggml.precompiled_charsmap"


def word_piece(vocabulary: GGUFVocabulary) -> Built:
    """Builds `bert`: WordPiece, the longest piece first. The file marks pieces that begin a word, the library all
    others."""
    metadata, name = vocabulary.metadata, vocabulary.name
    marked = [_marked(text, kind) for text, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)]
    unknown = vocabulary.token_of("unknown", 100)
    lowercase = optional(metadata, "tokenizer.ggml.normalizer.lowercase", bool, name, True)
    accents = optional(metadata, "tokenizer.ggml.normalizer.strip_accents", bool, name, lowercase)
    with library(f"{name}: tokenizer.ggml.tokens"):
        backend = tokenizers.Tokenizer(models.WordPiece(
            {text: i for i, text in enumerate(marked)}, unk_token=unknown or "[UNK]", max_input_chars_per_word=100))
        backend.add_tokens([token for _, token in vocabulary.added])
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=accents, lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(_INSIDE, cleanup=True)
    wraps = ("bos" if metadata.get("tokenizer.ggml.bos_token_id") is not None else "cls", "seperator")
    return Built(backend, TextPieces(backend.decoder), adds_eos=True, always_adds_bos=True, wraps=wraps,
                 default_ids={"bos": 101, "cls": 101, "seperator": 102})


def _marked(text: str, kind: int) -> str:
    if kind != NORMAL or (text.startswith("[") and text.endswith("]")):
        return text
    return text[len(SPACE):] if text.startswith(SPACE) else _INSIDE + text


def unigram(vocabulary: GGUFVocabulary) -> Built:
    """Builds `t5`: unigram, the segmentation with the highest sum of scores."""
    metadata, name = vocabulary.metadata, vocabulary.name
    scores = vocabulary.scores()
    lowest = min((s for s, kind in zip(scores, vocabulary.types, strict=False) if kind == NORMAL), default=0.0)
    entries = [(text, max(score, lowest) if kind in (CONTROL, UNKNOWN) else score)
               for text, kind, score in zip(vocabulary.tokens, vocabulary.types, scores, strict=False)]
    hidden = [(" " + text if kind in (CONTROL, UNKNOWN) else text, score)  # unreachable: no text has a space here
              for (text, score), kind in zip(entries, vocabulary.types, strict=True)]
    unknown = optional(metadata, "tokenizer.ggml.unknown_token_id", int, name, 2)
    with library(f"{name}: tokenizer.ggml.tokens"):
        backend = tokenizers.Tokenizer(models.Unigram(entries, unk_id=unknown, byte_fallback=False))
        literal = models.Unigram(hidden, unk_id=unknown, byte_fallback=False)
        backend.add_tokens([token for _, token in vocabulary.added])
    backend.normalizer = normalizers.Sequence(_normalizers(vocabulary))
    backend.pre_tokenizer = None
    prefixed = optional(metadata, "tokenizer.ggml.add_space_prefix", bool, name, False)
    space = decoders.Replace(SPACE, " ")
    backend.decoder = decoders.Sequence([space, decoders.Fuse(), decoders.Strip(" ", int(prefixed), 0)])
    return Built(backend, TextPieces(space, stripped_spaces=int(prefixed)), literal, adds_eos=True,
                 default_ids={"eos": 1})


def _normalizers(vocabulary: GGUFVocabulary) -> list[normalizers.Normalizer]:
    """Returns the file's map of characters, followed by its treatment of spaces."""
    metadata, name = vocabulary.metadata, vocabulary.name
    steps: list[normalizers.Normalizer] = []
    if metadata.get(_CHARS_MAP) is not None:
        data = bytes(value & 0xFF for value in require_list(metadata, _CHARS_MAP, int, name))
        check_chars_map(data, f"{name}: {_CHARS_MAP}")
        with library(f"{name}: {_CHARS_MAP}"):
            steps.append(normalizers.Precompiled(data))
    merges = optional(metadata, "tokenizer.ggml.remove_extra_whitespaces", bool, name, False)
    if merges:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex(OUTER_SPACES), "")]
    if merges or optional(metadata, "tokenizer.ggml.add_space_prefix", bool, name, False):
        steps.append(normalizers.Prepend(SPACE))
    return [*steps, normalizers.Replace(" ", SPACE)]

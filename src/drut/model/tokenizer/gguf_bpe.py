"""BPE tokenizers of GGUF files: byte-level BPE, BPE over text, and SentencePiece's BPE, which has scores."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import repeat

import tokenizers
from tokenizers import decoders, models, normalizers

from drut.errors import ModelFileError, UnsupportedError
from drut.model.notices import warn_once
from drut.model.tokenizer.gguf_vocabulary import NORMAL, UNUSED, USER_DEFINED, Built, GGUFVocabulary
from drut.model.tokenizer.pieces import ByteLevelPieces, TextPieces, byte_alphabet
from drut.model.tokenizer.splitting import SPACE, SPLITTINGS, Splitting
from drut.model.tokenizer.tokenizer import library
from drut.model.weights.metadata import optional, require_list

log = logging.getLogger(__name__)

_MAX_SPLITS = 50_000_000  # maximum of characters read while finding merges; Gemma's 256,000 pieces need 14 million
# Bytes in the UTF-8 of line ends, tabs and assigned characters of planes 0 to 3.
_ORDINARY = {*b"\t\n\r", *range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xF1)} - {0xEE}
Merges = list[tuple[str, str]]


def byte_level(vocabulary: GGUFVocabulary) -> Built:
    """Builds `gpt2`: byte-level BPE with the pre-tokenizer that `tokenizer.ggml.pre` names."""
    metadata, name = vocabulary.metadata, vocabulary.name
    pre = optional(metadata, "tokenizer.ggml.pre", str, name)
    if pre is None:
        warn_once(f"{name}: no tokenizer.ggml.pre: the pre-tokenizer is 'default', which may not be the model's")
        pre = "default"
    if pre not in SPLITTINGS:
        known = ", ".join(SPLITTINGS)
        raise UnsupportedError(f"{name}: tokenizer.ggml.pre {pre[:40]!r} is not supported (supported: {known})")
    if optional(metadata, "tokenizer.ggml.add_space_prefix", bool, name, False):
        raise UnsupportedError(f"{name}: tokenizer.ggml.add_space_prefix is not supported with gpt2")
    return _split(vocabulary, SPLITTINGS[pre])


def gemma(vocabulary: GGUFVocabulary) -> Built:
    """Builds `gemma4`: BPE over text with U+2581 for spaces."""
    return _split(vocabulary, SPLITTINGS["gemma4"])


def _split(vocabulary: GGUFVocabulary, splitting: Splitting) -> Built:
    merges = _merges(vocabulary)
    spelled = splitting.bytes_spelled
    with library(f"{vocabulary.name}: tokenizer.ggml.merges"):
        model = models.BPE(_vocab(vocabulary), merges, ignore_merges=splitting.whole_words, byte_fallback=not spelled,
                           fuse_unk=not spelled)
    backend = tokenizers.Tokenizer(model)
    if normalizer := splitting.normalizer():
        backend.normalizer = normalizer
    backend.pre_tokenizer = splitting.pre_tokenizer()
    if spelled:
        _check_bytes(vocabulary)
        backend.decoder = decoders.ByteLevel()  # for other programs that read the output of `to_json`
        built = Built(backend, ByteLevelPieces(byte_alphabet()), adds_bos=splitting.adds_bos)
    else:
        text = _text_decoder(backend, strips=False)
        built = Built(backend, text, adds_bos=splitting.adds_bos, always_adds_bos=splitting.adds_bos)
    return _with_added(vocabulary, built)


def scored(vocabulary: GGUFVocabulary) -> Built:
    """Builds `llama`: SentencePiece's BPE, which merges the adjacent pair whose joint piece has the highest score."""
    metadata, name = vocabulary.metadata, vocabulary.name
    vocab = _vocab(vocabulary)
    with library(f"{name}: tokenizer.ggml.tokens"):
        unknown = vocabulary.token_of("unknown", 0)
        model = models.BPE(vocab, merges_of(vocabulary), unk_token=unknown if unknown in vocab else None,
                           byte_fallback=True, fuse_unk=True)
    backend = tokenizers.Tokenizer(model)
    prefixed = optional(metadata, "tokenizer.ggml.add_space_prefix", bool, name, True)
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(SPACE)] if prefixed else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    pieces = _text_decoder(backend, strips=prefixed)
    return _with_added(vocabulary, Built(backend, pieces, adds_bos=True, default_ids={"bos": 1, "eos": 2}))


def merges_of(vocabulary: GGUFVocabulary) -> Merges:
    """Returns every way to make a piece from two others, the highest score first, in SentencePiece's order of merging.

    Raises ModelFileError if the pieces are so long that finding the merges would take minutes.
    """
    kinds, scores = (NORMAL, USER_DEFINED, UNUSED), vocabulary.scores()
    pieces = {text: i for i, text in enumerate(vocabulary.tokens) if vocabulary.types[i] in kinds}
    if sum(len(text) ** 2 for text in pieces) > _MAX_SPLITS:
        raise ModelFileError(f"{vocabulary.name}: tokenizer.ggml.tokens: the pieces are too long")
    order = sorted(pieces, key=lambda text: (-scores[pieces[text]], pieces[text]))
    merges = [(text[:k], text[k:]) for text in order for k in range(1, len(text))
              if text[:k] in pieces and text[k:] in pieces]
    _check_scores(merges, {text: scores[i] for text, i in pieces.items()}, vocabulary.name)
    return merges


def _check_scores(merges: Merges, scores: dict[str, float], name: str) -> None:
    """Warns if pieces share a score: SentencePiece merges the first in the text, this tokenizer the first in the file.

    Runs of one character, such as spaces, have the same result.
    """
    made = {left + right for left, right in merges}
    mixed = [text for text in made if len(set(text)) > 1]
    if shared := len(mixed) - len({scores[text] for text in mixed}):
        warn_once(f"{name}: tokenizer.ggml.scores: {shared} pieces share a score with others: text with them may be "
                  "split differently from SentencePiece")


def _text_decoder(backend: tokenizers.Tokenizer, *, strips: bool) -> TextPieces:
    """Returns the decoding of text pieces with U+2581 for spaces, and sets it as `backend`'s decoder."""
    space = decoders.Replace(SPACE, " ")
    steps: list[decoders.Decoder] = [space, decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strips else steps)
    return TextPieces(space, byte_fallback=True, stripped_spaces=int(strips))


def _with_added(vocabulary: GGUFVocabulary, built: Built) -> Built:
    with library(f"{vocabulary.name}: tokenizer.ggml.tokens"):
        built.backend.add_tokens([token for _, token in vocabulary.added])
    return built


def _vocab(vocabulary: GGUFVocabulary) -> dict[str, int]:
    return {token: i for i, token in enumerate(vocabulary.tokens[: vocabulary.model_size])}


def _merges(vocabulary: GGUFVocabulary) -> Merges:
    lines = require_list(vocabulary.metadata, "tokenizer.ggml.merges", str, vocabulary.name)
    try:
        return [(left, right) for left, right in map(str.split, lines, repeat(" "))]
    except ValueError:
        i = next(i for i, line in enumerate(lines) if line.count(" ") != 1)
        entry = f"entry {i}, {lines[i][:40]!r}"
        raise ModelFileError(f"{vocabulary.name}: tokenizer.ggml.merges: {entry}, does not have two parts") from None


def _check_bytes(vocabulary: GGUFVocabulary) -> None:
    """Logs the bytes without an entry in the vocabulary, which text loses. Warns only of bytes in ordinary text."""
    tokens = set(vocabulary.tokens)
    missing = {byte for char, byte in byte_alphabet().items() if char not in tokens}
    what = f"{vocabulary.name}: tokenizer.ggml.tokens has no entry for the bytes"
    if ordinary := missing & _ORDINARY:
        warn_once(f"{what} {_listed(sorted(ordinary))}: text loses them")
    if rare := missing - _ORDINARY:
        log.debug("%s %s", what, _listed(sorted(rare)))


def _listed(values: Iterable[int]) -> str:
    shown = [f"0x{byte:02X}" + (f" ({chr(byte)})" if 0x20 < byte < 0x7F else "") for byte in values]
    return ", ".join(shown[:16]) + (f" and {len(shown) - 16} more" if len(shown) > 16 else "")

"""Tokenizers laid out as the published `tokenizer.json` of their family, and the texts they are compared on.

Run as a module with a GGUF file of SmolLM2 to write the ids in `data/smollm2_ids.json` again.
"""

import json
import sys
from pathlib import Path

from hypothesis import strategies as st
from tokenizers import Tokenizer

DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "smollm2_ids.json"

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def _byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(False)]}


_DIGITS = {"type": "Digits", "individual_digits": True}
PRE_TOKENIZERS = {
    "gpt-2": _byte_level(True),
    "smollm": {"type": "Sequence", "pretokenizers": [_DIGITS, _byte_level(True)]},
    "llama-bpe": _split(LLAMA3),
    "qwen2": _split(QWEN2),
}


def layout(pre, vocab, merges, added=()):
    """The object in a `tokenizer.json`: `vocab` maps pieces to ids, `added` are (id, text, special)."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": text, **flags, "special": s} for i, text, s in added],
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": _byte_level(True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre == "llama-bpe",
            "vocab": vocab,
            "merges": merges,
        },
    }


def reference(pre, vocab, merges, added=()):
    return Tokenizer.from_str(json.dumps(layout(pre, vocab, merges, added)))


def smollm2_reference(metadata):
    """The published layout with the vocabulary in a GGUF file's metadata."""
    tokens = metadata["tokenizer.ggml.tokens"]
    kinds = metadata["tokenizer.ggml.token_type"]
    added = [(i, token, True) for i, token in enumerate(tokens) if kinds[i] == 3]
    return reference("smollm", {t: i for i, t in enumerate(tokens)}, metadata["tokenizer.ggml.merges"], added)


def golden():
    """Texts (scripts, emoji, code, white space, runs, control characters) with SmolLM2's ids for them."""
    return [(text, ids) for text, ids in json.loads(GOLDEN.read_text())]


TEXTS = [text for text, _ in golden()]

# Random text that meets the rules' edges more often than uniform characters would.
_SHORT = [text for text in TEXTS if len(text) < 30]
_FRAGMENTS = st.sampled_from([*_SHORT, *" \t\n\r0123456789'sStTabĠ", "'ll", "<|im_"])
_CHARACTERS = st.characters(exclude_categories=["Cs"])
random_texts = st.lists(st.one_of(_FRAGMENTS, st.text(_CHARACTERS, max_size=8)), max_size=12).map("".join)


def main(path):
    from drut.model.weights.gguf import GGUFFile

    tokenizer = smollm2_reference(GGUFFile(path).metadata)
    rows = [[text, tokenizer.encode(text).ids] for text in TEXTS]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    GOLDEN.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])

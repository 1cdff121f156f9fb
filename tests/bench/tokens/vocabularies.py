"""Small tokenizers of every build in use, trained on Shakespeare, as folders with a tokenizer.json."""

import functools
import json
import tempfile
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel

from drut.bench.tokens import LocalTokenizer
from drut.bench.workloads.packed import read_text
from tests.model.tokenizer_reference import LLAMA3, QWEN2


def _split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


def _byte_level(pre, vocab_size, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=["<s>"])
    return tokenizer, trainer


def _sentencepiece():
    """As of Llama 2: no words are cut, a space is put in front of every text, unknown characters are bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    # Training needs words; a merge that crosses one would not be learnt by SentencePiece either.
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer, trainers.BpeTrainer(vocab_size=2000, show_progress=False, special_tokens=["<unk>", "<s>"])


def _with_bytes(tokenizer):
    """No words, and a token for each byte: what training has no way to ask for."""
    content = json.loads(tokenizer.to_str())
    vocab = content["model"]["vocab"]
    vocab |= {f"<0x{i:02X}>": len(vocab) + i for i in range(256)}
    return Tokenizer.from_str(json.dumps(content | {"pre_tokenizer": None}))


BUILDS = {
    "gpt-2": lambda: _byte_level(ByteLevel(add_prefix_space=False), 2000),
    "gpt-2 with a space in front": lambda: _byte_level(ByteLevel(add_prefix_space=True), 2000),
    "llama-3": lambda: _byte_level(_split(LLAMA3), 2000),
    "qwen": lambda: _byte_level(_split(QWEN2), 2000, normalizers.NFC()),
    "no words": lambda: _byte_level(ByteLevel(add_prefix_space=False), 270),  # hardly more than single bytes
    "llama-2": _sentencepiece,
}


@functools.cache
def vocabulary(name: str) -> LocalTokenizer:
    """The tokenizer of that build, through its file. One a process: training takes a second."""
    tokenizer, trainer = BUILDS[name]()
    tokenizer.train_from_iterator(read_text("shakespeare.txt")[:200_000].splitlines(), trainer)
    if name == "llama-2":
        tokenizer = _with_bytes(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(str(Path(folder, "tokenizer.json")))
        return LocalTokenizer.open(folder)

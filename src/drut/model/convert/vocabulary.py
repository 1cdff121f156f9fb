"""Writes a byte-level BPE vocabulary in the form of either container."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drut.errors import ModelFileError, UnsupportedError
from drut.model.tokenizer import Tokenizer, chat
from drut.model.tokenizer.splitting import name_of

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 3, 4, 5, 6  # values of `tokenizer.ggml.token_type`
_BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))


def gguf_keys(tokenizer: Tokenizer, vocab: int, where: str) -> dict[str, object]:
    """Returns the keys `tokenizer.*` of a tokenizer; ids up to `vocab` without a token become unused tokens.

    Raises UnsupportedError for other kinds than byte-level BPE, or for a pre-tokenizer that GGUF has no name for here.
    """
    state = json.loads(tokenizer.to_json())
    model = state["model"]
    if model.get("type") != "BPE":
        raise UnsupportedError(f"{where}: a tokenizer of kind {model.get('type')!r} cannot be written to GGUF "
                               "(can be: byte-level BPE)")
    pre = name_of(state)
    if pre is None:
        raise UnsupportedError(f"{where}: the tokenizer has a pre-tokenizer that GGUF has no name for here")
    tokens, types = [f"[PAD{i}]" for i in range(vocab)], [_UNUSED] * vocab
    bytes_ = _BYTES if model.get("byte_fallback") else frozenset()
    entries = [(i, text, _BYTE if text in bytes_ else _NORMAL) for text, i in model["vocab"].items()]
    entries += [(t["id"], t["content"], _CONTROL if t["special"] else _USER_DEFINED) for t in state["added_tokens"]]
    for i, text, kind in entries:
        if i >= vocab:
            raise ModelFileError(f"{where}: token {text[:40]!r} has id {i}, but the vocabulary has {vocab} rows")
        tokens[i], types[i] = text, kind
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    keys: dict[str, object] = {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": types, "merges": merges}
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()} | _rules(tokenizer)


def _rules(tokenizer: Tokenizer) -> dict[str, object]:
    rules = tokenizer.rules
    main = rules.eos_id if rules.eos_id is not None else min(rules.eos_ids, default=None)
    others = sorted(rules.eos_ids - {main})
    if len(others) > 2:
        raise UnsupportedError(f"{tokenizer.name}: {1 + len(others)} ids end an output; a GGUF file can have three")
    keys = {"bos_token_id": rules.bos_id, "eos_token_id": main, **dict(zip(("eot_token_id", "eom_token_id"), others,
                                                                         strict=False))}
    out: dict[str, object] = {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}
    out |= {f"tokenizer.ggml.{key}": value for key, value in _added(tokenizer).items()}
    return out | chat.gguf_keys(tokenizer.chat_templates)


def _added(tokenizer: Tokenizer) -> dict[str, bool]:
    """Returns whether BOS and EOS are added to a text. Raises UnsupportedError if other tokens are."""
    rules = tokenizer.rules
    if rules.prefix not in ((), (rules.bos_id,)) or rules.suffix not in ((), (rules.eos_id,)):
        raise UnsupportedError(f"{tokenizer.name}: the tokenizer adds other tokens than BOS and EOS to a text, "
                               "which cannot be written")
    return {"add_bos_token": bool(rules.prefix), "add_eos_token": bool(rules.suffix)}


def write_hf(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`."""
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **_added(tokenizer),
                              "clean_up_tokenization_spaces": False}
    for key, token in (("bos_token", tokenizer.bos_token), ("eos_token", tokenizer.eos_token)):
        if token:
            config[key] = token
    if (template := chat.hf_value(tokenizer.chat_templates)) is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")

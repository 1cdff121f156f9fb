"""The memory that keys and values take, for engines that need to know it beforehand."""

from __future__ import annotations

from pathlib import Path

import msgspec

from drut.bench.engines.engine import CannotRunError


def kv_bytes(folder: Path, tokens: int, element_bytes: int) -> int:
    """Returns the bytes for `tokens` tokens of a Hugging Face model, as if every layer had full attention: layers x KV
    heads x head size x 2 (keys and values). Raises CannotRunError if its config.json lacks a value."""
    path = folder / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes())
        config = config.get("text_config", config)
        heads = config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        return int(tokens * config["num_hidden_layers"] * config.get("num_key_value_heads", heads) * size
                   * 2 * element_bytes)
    except (OSError, msgspec.DecodeError, AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
        raise CannotRunError(f"{path} does not state the size of keys and values: {error!r}") from None

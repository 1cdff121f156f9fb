"""Tokens that end an answer, for engines that can only be kept from ending by a bias against them."""

from __future__ import annotations

from pathlib import Path

from drut.bench.engines.engine import CannotRunError, ModelFiles
from drut.errors import DrutError
from drut.model.store import resolve
from drut.model.tokenizer import open_tokenizer

# Engines take these for ends by their text alone, whatever the model's settings say.
_BY_TEXT = ("<|endoftext|>", "<|im_end|>", "<|end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|endofturn|>",
            "</s>", "<EOT>", "<|return|>", "<|call|>")
BIAS = -100


def bias_against_ends(files: ModelFiles) -> dict[str, int]:
    """`logit_bias` that makes an answer as long as `max_tokens`. CannotRunError where the tokenizer cannot be read."""
    try:
        path = Path(files.tokenizer).expanduser()
        tokenizer = open_tokenizer(path if path.exists() else resolve(files.tokenizer))
        ids = set(tokenizer.eos_ids)
        for text in _BY_TEXT:
            found = tokenizer.encode(text, add_special=False, parse_special=True)
            if len(found) == 1 and tokenizer.decode(found, skip_special=False) == text:
                ids.add(found[0])
    except (DrutError, OSError) as error:
        raise CannotRunError(f"no tokenizer to tell which tokens end an answer: {error}") from None
    return {str(id): BIAS for id in sorted(ids)}

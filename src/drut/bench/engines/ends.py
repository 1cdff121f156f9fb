"""End-of-sequence tokens, for engines that can be kept from ending a response only by a logit bias."""

from __future__ import annotations

from pathlib import Path

from drut.bench.engines.engine import CannotRunError, EngineFiles
from drut.errors import DrutError
from drut.model.store import resolve
from drut.model.tokenizer import open_tokenizer

# Engines treat these as end-of-sequence tokens by their text alone, whatever the model's settings are.
_BY_TEXT = ("<|endoftext|>", "<|im_end|>", "<|end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|endofturn|>",
            "</s>", "<EOT>", "<|return|>", "<|call|>")
BIAS = -100


def bias_against_ends(files: EngineFiles) -> dict[str, int]:
    """Returns a `logit_bias` that makes a response as long as `max_tokens`. Raises CannotRunError if the tokenizer
    cannot be read."""
    try:
        path = Path(files.tokenizer).expanduser()
        tokenizer = open_tokenizer(path if path.exists() else resolve(files.tokenizer))
        ids = set(tokenizer.eos_ids)
        for text in _BY_TEXT:
            found = tokenizer.encode(text, add_special=False, parse_special=True)
            if len(found) == 1 and tokenizer.decode(found, skip_special=False) == text:
                ids.add(found[0])
    except (DrutError, OSError) as error:
        raise CannotRunError(f"no tokenizer to find the end-of-sequence tokens: {error}") from None
    return {str(id): BIAS for id in sorted(ids)}

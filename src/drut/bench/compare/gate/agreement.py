"""The agreement of an engine's greedy answers with those of a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from drut.bench.compare.gate.likelihood import ScoredText
from drut.errors import RequestError

Encode = Callable[[str], Sequence[object]]
MAX_BYTES = 64 << 20


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of `reference.json`: greedy answers of at most `max_tokens` tokens, by prompt, and the scores of
    texts, if any, by the contestant `scores_of`."""

    source: str
    chat: bool
    max_tokens: int
    answers: dict[str, str]
    scores: list[ScoredText] = []
    scores_of: str = ""


class Agreement(msgspec.Struct, frozen=True):
    """The result. `share`: tokens before the first difference, as a share of all tokens. `differs_at`: by answer, the
    position of the first difference, None if there is none."""

    share: float
    differs_at: list[int | None]


def agreement(own: Sequence[str], reference: Sequence[str], encode: Encode) -> Agreement:
    """Compares answers to the same prompts, at least one. Texts are tokenized with the model's tokenizer, because
    servers return text, some without the first space. If one answer ends and the other continues, they differ there."""
    shares, places = [], []
    for mine, theirs in zip(own, reference, strict=True):
        a, b = list(encode(mine.lstrip())), list(encode(theirs.lstrip()))
        longest = max(len(a), len(b))
        same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        shares.append(same / longest if longest else 1.0)
        places.append(None if same == longest else same)
    return Agreement(fmean(shares), places)


def read_reference(path: Path) -> Reference:
    """Reads a reference.json. Raises RequestError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RequestError(f"--reference: {path} is larger than {MAX_BYTES >> 20} MiB")
        return msgspec.json.decode(path.read_bytes(), type=Reference)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise RequestError(f"--reference: {path}: {error}") from None

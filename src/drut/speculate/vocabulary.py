"""Checks that a drafter and its target mean the same by each token id."""

from __future__ import annotations

from drut.errors import RequestError
from drut.model.tokenizer import Tokenizer


def check_same_ids(target: Tokenizer | None, drafter: Tokenizer | None, name: str) -> None:
    """Raises RequestError, which names the first difference, unless each id has the same text in both vocabularies. One
    may be longer: ids that only one of them has are padding. `name`: of the drafter."""
    if target is None or drafter is None:
        missing = "the model" if target is None else name
        raise RequestError(f"speculate: {missing} has no tokenizer, so its token ids cannot be compared")
    for i in range(min(target.vocab_size, drafter.vocab_size)):
        ours, theirs = target.piece(i), drafter.piece(i)
        if ours != theirs and ours is not None and theirs is not None:
            raise RequestError(f"speculate: {name} cannot draft for this model: token id {i} is {theirs!r} there and "
                               f"{ours!r} here")

"""Raw logits of a text, through the engine's ordinary operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drut.engine.checks import check_prompt
from drut.engine.engine import Engine
from drut.errors import RequestError
from drut.kernels.ops import F32


def logits(engine: Engine, tokens: Sequence[int], chunk: int = 64) -> F32:
    """Of every position, float32 (len(tokens), vocab), `chunk` of them in a step.

    RequestError while requests are open: they may be in a step, and sequence slot 0 may be one's of theirs.
    """
    check_prompt(tokens, engine.vocab)
    if engine.busy:
        raise RequestError("logits need the engine for themselves: finish or close the answers under way first")
    if len(tokens) > engine.room:
        raise RequestError(f"{len(tokens)} tokens do not fit the {engine.bound} of {engine.room}")
    cache, runner = engine.cache, engine.runner
    table, parts = cache.table(), []
    chunk = max(1, min(chunk, runner.limits.samples, runner.limits.tokens))
    try:
        for start in range(0, len(tokens), chunk):
            part = tokens[start : start + chunk]
            if not cache.reserve(table, start + len(part)):
                raise RequestError(f"{len(tokens)} tokens do not fit the KV cache")
            parts.append(runner.logits(part, start, table.maps))
            cache.slide(table, start + len(part))
    finally:
        cache.release(table)
    return np.concatenate(parts)

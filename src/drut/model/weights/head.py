"""Tied heads: decides if a head that a checkpoint stores in spite of `tie_word_embeddings` is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from drut.model.families.table import Stored
from drut.model.notices import warn_once
from drut.model.spec import ModelSpec
from drut.model.weights.same import same_tensor
from drut.model.weights.source import TensorSource

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def with_stored_head(spec: ModelSpec, source: TensorSource, where: str) -> ModelSpec:
    """Returns `spec` with a head of its own if the file stores one that differs from the embedding, and logs it.

    A copy of the embedding stays tied. `transformers` does the same and ignores `tie_word_embeddings` then.
    """
    if not spec.tied_head or not {EMBED, HEAD} <= source.tensors.keys() or same_tensor(source, EMBED, source, HEAD):
        return spec
    warn_once(f"{where}: tie_word_embeddings is true, but the checkpoint's lm_head.weight differs and is used")
    return replace(spec, tied_head=False)


def shared_under_head(table: Mapping[str, Stored], spec: ModelSpec, source: TensorSource) -> Mapping[str, Stored]:
    """Returns `table` with the head's name for the embedding, if a file stores the tied tensor only under that name."""
    if spec.tied_head and HEAD in source.tensors and EMBED not in source.tensors:
        return {**table, "embed": replace(table["embed"], name=HEAD)}
    return table

"""Whether a model's head is its embedding, where a checkpoint says so and stores a head all the same."""

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
    """`spec` with a head of its own where the file stores one that differs from the embedding, and logs it.

    A copy of the embedding stays tied. `transformers` does the same, whatever `tie_word_embeddings` says.
    """
    if not spec.tied_head or not {EMBED, HEAD} <= source.tensors.keys() or same_tensor(source, EMBED, source, HEAD):
        return spec
    warn_once(f"{where}: tie_word_embeddings is true, and the checkpoint has another lm_head.weight, which is used")
    return replace(spec, tied_head=False)


def shared_under_head(table: Mapping[str, Stored], spec: ModelSpec, source: TensorSource) -> Mapping[str, Stored]:
    """`table` with the embedding under the head's name, where a file stores what they share under that name alone."""
    if spec.tied_head and HEAD in source.tensors and EMBED not in source.tensors:
        return {**table, "embed": replace(table["embed"], name=HEAD)}
    return table

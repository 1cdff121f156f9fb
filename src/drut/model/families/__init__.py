"""Families: each file here turns a checkpoint's metadata into a model spec and maps roles to stored tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from drut.errors import UnsupportedError
from drut.model.families import (
    cohere2,
    gemma,
    glm,
    glm_moe,
    gpt_oss,
    granite,
    llama,
    mistral,
    mixtral,
    olmo,
    phi,
    qwen,
    qwen_moe,
    refused,
    smollm3,
    starcoder2,
)
from drut.model.families.table import Stored
from drut.model.spec import ModelSpec
from drut.model.weights.mapping import quote
from drut.model.weights.source import TensorSource


class Family(Protocol):
    """The interface of a family module."""

    NAME: str
    EXAMPLES: str  # models of the family, for documentation
    HF_ARCHITECTURES: tuple[str, ...]
    GGUF_ARCHITECTURES: tuple[str, ...]

    def from_hf(self, config: Mapping[str, object], path: str) -> ModelSpec: ...
    def from_gguf(self, metadata: Mapping[str, object], source: TensorSource, path: str) -> ModelSpec: ...
    def hf_table(self, spec: ModelSpec) -> dict[str, Stored]: ...
    def gguf_table(self, spec: ModelSpec) -> dict[str, Stored]: ...


FAMILIES: tuple[Family, ...] = (llama, mistral, qwen, gemma, phi, olmo, granite, smollm3, glm, starcoder2, cohere2,
                                mixtral, qwen_moe, glm_moe, gpt_oss)


def family_of_hf(architecture: str) -> Family:
    """Returns the family of a `config.json` architecture; raises UnsupportedError, which names it, if there is none."""
    return _family(architecture, {name: f for f in FAMILIES for name in f.HF_ARCHITECTURES}, refused.HF)


def family_of_gguf(architecture: str) -> Family:
    """Returns the family of a `general.architecture`; raises UnsupportedError, which names it, if there is none."""
    return _family(architecture, {name: f for f in FAMILIES for name in f.GGUF_ARCHITECTURES}, refused.GGUF)


def _family(architecture: str, known: Mapping[str, Family], why: Mapping[str, str]) -> Family:
    if architecture in why:
        raise UnsupportedError(f"architecture {architecture!r} is not supported: {why[architecture]}")
    if architecture not in known:
        raise UnsupportedError(f"architecture {quote(architecture)} is not supported (supported: {', '.join(known)})")
    return known[architecture]

"""Families: one file each turns a file's metadata into a spec and says which stored tensor plays which role."""

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
    """What a family module offers."""

    NAME: str
    EXAMPLES: str  # models of the family, for people
    HF_ARCHITECTURES: tuple[str, ...]
    GGUF_ARCHITECTURES: tuple[str, ...]

    def from_hf(self, config: Mapping[str, object], path: str) -> ModelSpec: ...
    def from_gguf(self, metadata: Mapping[str, object], source: TensorSource, path: str) -> ModelSpec: ...
    def hf_table(self, spec: ModelSpec) -> dict[str, Stored]: ...
    def gguf_table(self, spec: ModelSpec) -> dict[str, Stored]: ...


FAMILIES: tuple[Family, ...] = (llama, mistral, qwen, gemma, phi, olmo, granite, smollm3, glm, starcoder2, cohere2,
                                mixtral, qwen_moe, glm_moe, gpt_oss)


def family_of_hf(architecture: str) -> Family:
    """The family of a `config.json` architecture; UnsupportedError names it."""
    return _family(architecture, {name: f for f in FAMILIES for name in f.HF_ARCHITECTURES}, refused.HF)


def family_of_gguf(architecture: str) -> Family:
    """The family of a `general.architecture`; UnsupportedError names it."""
    return _family(architecture, {name: f for f in FAMILIES for name in f.GGUF_ARCHITECTURES}, refused.GGUF)


def _family(architecture: str, known: Mapping[str, Family], why: Mapping[str, str]) -> Family:
    if architecture in why:
        raise UnsupportedError(f"architecture {architecture!r} is not supported: {why[architecture]}")
    if architecture not in known:
        raise UnsupportedError(f"architecture {quote(architecture)} is not supported (supported: {', '.join(known)})")
    return known[architecture]

"""The text part of a multimodal model: its config and its tensors, with the names of a text-only model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError
from drut.model.weights.source import TensorInfo, TensorSource

# Prefixes of the text part's tensors: `language_model`, inside `model` in newer files.
PREFIX = re.compile(r"language_model\.|(?<=^model\.)language_model\.")
OUTER = ("eos_token_id", "bos_token_id")


def text_config(config: Mapping[str, object], where: str) -> Mapping[str, object]:
    """Returns the settings of `text_config` merged with those of the whole model. Only the whole model's key decides
    if the head is tied; the default is true."""
    inner = config["text_config"]
    if not isinstance(inner, Mapping):
        raise ModelFileError(f"{where}: text_config must be an object")
    return {**{key: config[key] for key in OUTER if key in config}, **inner, "architectures": config["architectures"],
            "tie_word_embeddings": config.get("tie_word_embeddings", True)}


class TextPart:
    """A TensorSource of the text part's tensors."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source
        self._stored = {PREFIX.sub("", name, count=1): name for name in source.tensors
                        if PREFIX.search(name) or name == "lm_head.weight"}
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: replace(source.tensors[stored], name=name) for name, stored in self._stored.items()})

    @property
    def skipped(self) -> int:
        """The number of tensors outside the text part."""
        return len(self._source.tensors) - len(self._stored)

    def raw(self, name: str) -> NDArray[np.uint8]:
        return self._source.raw(self._stored[name])

    def columns(self, name: str) -> NDArray[np.int32] | None:
        return self._source.columns(self._stored[name])

    def release(self, name: str) -> None:
        self._source.release(self._stored[name])

    def close(self) -> None:
        self._source.close()

"""A model that also sees is read without its vision part."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from drut import LLM
from drut.errors import ModelFileError
from drut.model.model import open_model
from tests.golden.weights import config, tensors, token_ids, write_checkpoint, write_safetensors

# Architecture and type of the whole, and the tiny checkpoint that is its text part.
SEEING = [("Gemma3ForConditionalGeneration", "gemma3", "gemma3"),
          ("Mistral3ForConditionalGeneration", "mistral3", "ministral3"),
          ("Mistral3ForConditionalGeneration", "mistral3", "mistral_mqa")]


def write(directory: Path, prefix: str, architecture: str, kind: str, name: str) -> Path:
    """The tiny checkpoint as the text part of a larger model, its tensors called as older or newer files do."""
    inner = config(name)
    directory.mkdir()
    outer = {"architectures": [architecture], "model_type": kind, "vision_config": {},
             "tie_word_embeddings": inner["tie_word_embeddings"],
             "text_config": {key: inner[key] for key in inner if key != "architectures"}}
    (directory / "config.json").write_text(json.dumps(outer))
    vision = [("vision_tower.blocks.0.norm.bias", np.zeros(4, np.float32)),
              ("projector.weight", np.eye(4, dtype=np.float32))]
    write_safetensors(directory / "model.safetensors",
                      [(own.replace("model.", prefix, 1), array) for own, array in tensors(name)] + vision)
    return directory


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
@pytest.mark.parametrize(("architecture", "kind", "name"), SEEING)
def test_the_same_logits_as_the_text_part_alone(tmp_path: Path, architecture: str, kind: str, name: str,
                                                prefix: str) -> None:
    ids = token_ids(name, "text part", 20)
    with LLM(write_checkpoint(name, tmp_path / name), backend="numpy") as llm:
        alone = llm.logits(ids)
    with (pytest.warns(UserWarning, match="2 vision tensors are skipped"),
          LLM(write(tmp_path / "sees", prefix, architecture, kind, name), backend="numpy") as llm):
        assert np.array_equal(llm.logits(ids), alone)


def test_a_text_config_that_is_no_object_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path / "sees", "language_model.model.", *SEEING[0])
    damaged = json.loads((path / "config.json").read_text()) | {"text_config": []}
    (path / "config.json").write_text(json.dumps(damaged))
    with pytest.raises(ModelFileError, match="text_config must be an object"):
        open_model(path)

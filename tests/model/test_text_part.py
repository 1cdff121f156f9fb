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

NAME = "gemma3"


def write(directory: Path, prefix: str) -> Path:
    """The tiny checkpoint as the text part of a larger model, its tensors called as older or newer files do."""
    inner = config(NAME)
    directory.mkdir()
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "vision_config": {},
             "text_config": {key: inner[key] for key in inner if key != "architectures"}}
    (directory / "config.json").write_text(json.dumps(outer))
    vision = [("vision_tower.blocks.0.norm.bias", np.zeros(4, np.float32)),
              ("projector.weight", np.eye(4, dtype=np.float32))]
    write_safetensors(directory / "model.safetensors",
                      [(name.replace("model.", prefix, 1), array) for name, array in tensors(NAME)] + vision)
    return directory


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_same_logits_as_the_text_part_alone(tmp_path: Path, prefix: str) -> None:
    ids = token_ids(NAME, "text part", 20)
    with LLM(write_checkpoint(NAME, tmp_path / NAME), backend="numpy") as llm:
        alone = llm.logits(ids)
    with (pytest.warns(UserWarning, match="2 tensors of vision are skipped"),
          LLM(write(tmp_path / "sees", prefix), backend="numpy") as llm):
        assert np.array_equal(llm.logits(ids), alone)


def test_a_text_config_that_is_no_object_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path / "sees", "language_model.model.")
    damaged = json.loads((path / "config.json").read_text()) | {"text_config": []}
    (path / "config.json").write_text(json.dumps(damaged))
    with pytest.raises(ModelFileError, match="text_config must be an object"):
        open_model(path)

"""A config.json means what `transformers` takes it to mean, however it is written; what it does not take is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut import LLM
from drut.errors import DrutError, ModelFileError, UnsupportedError
from drut.model.families import family_of_hf
from drut.model.families.architecture import TYPES, architecture
from drut.model.spec import ModelSpec
from tests.golden.variants import GONE, VARIANTS, variant
from tests.golden.weights import HERE, NAMES, config, token_ids, write_checkpoint

ROW = 80
TOLERANCE = 1e-4  # relative to the largest logit
RESAVED: dict[str, dict[str, Any]] = json.loads((HERE / "resaved.json").read_text())
DEFAULTS: dict[str, dict[str, Any]] = json.loads((HERE / "defaults.json").read_text())
with np.load(HERE / "variants.npz") as stored:
    LAST_ROWS = dict(stored)


SIZES = {"num_attention_heads", "num_hidden_layers", "hidden_size", "max_position_embeddings", "vocab_size",
         "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "num_experts_per_tok",
         "num_experts", "num_local_experts", "n_routed_experts"}


def read(cfg: dict[str, Any]) -> ModelSpec:
    named = architecture(cfg, "tiny")
    return family_of_hf(named).from_hf(cfg | {"architectures": [named]}, "tiny")


def changed(name: str, changes: dict[str, Any]) -> ModelSpec:
    return read({key: value for key, value in (config(name) | changes).items() if value is not GONE})


def test_every_checkpoint_of_floats_was_saved_again() -> None:
    assert list(RESAVED) == [name for name in NAMES if "quantization_config" not in config(name)]


@pytest.mark.parametrize("name", RESAVED)
def test_a_config_saved_again_is_of_the_same_model(name: str) -> None:
    assert read(RESAVED[name]) == read(config(name))


def test_defaults_are_those_of_every_type() -> None:
    assert DEFAULTS.keys() | {"gemma3", "mistral3"} == set(TYPES.values())


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_key_that_is_left_out_has_the_default_of_transformers(kind: str) -> None:
    """Sizes have none here, but for Gemma, whose published files leave some out: a file without one is damaged."""
    whole, spec = DEFAULTS[kind], read(DEFAULTS[kind])
    for key in whole.keys() - {"model_type"}:
        left = {k: v for k, v in whole.items() if k != key}
        if key in SIZES and not kind.startswith("gemma"):
            with pytest.raises(ModelFileError, match=f"key '{key}' is missing"):
                read(left)
        else:
            assert read(left) == spec, key


def test_every_variant_has_a_reference() -> None:
    assert LAST_ROWS.keys() == VARIANTS.keys()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_config_written_otherwise_gives_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    base, _ = VARIANTS[name]
    folder = write_checkpoint(base, tmp_path / base, variant(name))
    with LLM(folder, kv_dtype="fp32", threads=1) as llm:
        last = llm.logits(token_ids(base, name, ROW))[-1]
    assert np.abs(last - LAST_ROWS[name]).max() < TOLERANCE * np.abs(LAST_ROWS[name]).max()


WINDOWED = ["sliding_attention", "full_attention"]
REFUSED = [
    ("llama_tied", {"model_type": "qwen2"}, "model_type 'qwen2' is not that of LlamaForCausalLM"),
    ("llama_tied", {"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}},
     "partial_rotary_factor 0.5 with rope scaling 'linear'"),
    ("llama_tied", {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "a table for each kind of layer"),
    ("olmo2", {"rope_parameters": {"sliding_attention": {"rope_theta": 1e4}}}, "a table for each kind of layer"),
    ("gemma3", {"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters without full_attention"),
    ("gemma3", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "type and without rope_type"),
    ("olmo3", {"rope_parameters": GONE, "rope_theta": 1e4}, "rope_theta 10000.0 without rope_parameters"),
    ("olmo3", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": False}}, "truncate false"),
    ("gemma2", {"layer_types": GONE, "sliding_window_pattern": 3}, "sliding_window_pattern 3"),
    ("mixtral_gqa", {"sliding_window": 16, "layer_types": WINDOWED}, "layer_types: all layers of family mixtral"),
    ("qwen3_moe", {"sliding_window": 16, "use_sliding_window": True, "layer_types": WINDOWED}, "layer_types: all"),
    ("ministral3", {"sliding_window": 16, "layer_types": WINDOWED}, "layer_types: all layers of family mistral"),
    ("gpt_oss", {"swiglu_alpha": 1.0}, "swiglu_alpha is not 1.702"),
    ("mistral_window", {"sliding_window": 0}, "sliding_window is 0"),
    ("cohere2", {"sliding_window": None}, "sliding_window is missing"),
    ("qwen2_window", {"use_sliding_window": False, "layer_types": [*WINDOWED, "full_attention"]},
     "sliding_window is missing"),
    ("qwen3_moe", {"num_local_experts": 4}, "num_local_experts and num_experts differ: 4, 12"),
    ("ministral3", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
     "'llama_4_scaling_beta' is missing"),
    ("llama_tied", {"architectures": GONE, "model_type": GONE}, "'architectures' is missing"),
]


@pytest.mark.parametrize(("name", "changes", "said"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_what_contradicts_itself_is_refused_by_name(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises((ModelFileError, UnsupportedError), match=re.escape(said)) as caught:
        changed(name, changes)
    assert isinstance(caught.value, DrutError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["llama_tied", "granite", "olmo2", "glm4", "glm4_moe"])
def test_types_that_are_all_plain_say_nothing(name: str) -> None:
    plain = ["full_attention"] * config(name)["num_hidden_layers"]
    assert changed(name, {"layer_types": plain}) == read(config(name))

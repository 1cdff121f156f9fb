"""Smoothing before W8A8: the folded model is the same function, and the rounded one is closer to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from drut import LLM
from drut.kernels.numpy.numbers import rms_norm
from drut.model.convert import convert
from drut.model.convert.calibration import Calibration
from drut.model.convert.smooth import balance, smoothing
from drut.model.model import open_model
from drut.model.weights.safetensors import SafetensorsFile
from tests.golden.weights import config, token_ids
from tests.model.convert.test_convert import canonical, checkpoint
from tests.model.quantized.files import write

NAMES = ["llama_tied", "llama3_gqa", "qwen2_untied", "qwen3_gqa"]  # grouped heads, biases, norms of q and k
READERS = {"input_layernorm": ("self_attn.q", "self_attn.k", "self_attn.v"),
           "post_attention_layernorm": ("mlp.gate", "mlp.up")}  # of each norm


def with_outliers(name: str, folder: Path) -> Path:
    """A checkpoint with some activations 100 times larger, and the columns that multiply them as much smaller."""
    path = checkpoint(name, folder) / "model.safetensors"
    file = SafetensorsFile(path)
    tensors = {t.name: file.raw(t.name).view(np.float32).reshape(t.shape).copy() for t in file.tensors.values()}
    for layer in range(config(name)["num_hidden_layers"]):
        for norm, readers in READERS.items():
            tensors[f"model.layers.{layer}.{norm}.weight"][3::17] *= 100
            for reader in readers:
                tensors[f"model.layers.{layer}.{reader}_proj.weight"][:, 3::17] /= 100
    write(path, tensors)
    return folder


def logits(path: Path, name: str) -> np.ndarray:
    with LLM(path, backend="numpy", kv_dtype="fp32") as llm:
        return llm.logits(token_ids(name, "short", 41)).copy()


def sample(name: str) -> list[int]:
    return token_ids(name, "calibration", 64)


@pytest.mark.parametrize("name", NAMES)
def test_folds_leave_the_function_as_it_is(tmp_path: Path, name: str) -> None:
    source = with_outliers(name, tmp_path / "source")
    before, files = logits(source, name), open_model(source)
    folds, values = smoothing(files, sample(name)), canonical(files)
    assert all(fold.outputs is None or np.ptp(np.log2(fold.outputs)) > 0.1 for fold in folds.values())
    write(source / "model.safetensors", {files.table[role].name: folds[role].of(held) if role in folds else held
                                         for role, held in values.items()})
    assert np.abs(logits(source, name) - before).max() < 1e-5 * np.abs(before).max()


@pytest.mark.parametrize("name", NAMES)
def test_w8a8_is_closer_to_the_floats(tmp_path: Path, name: str) -> None:
    source, errors = with_outliers(name, tmp_path / "source"), []
    exact, files = logits(source, name), open_model(source)
    for i, ids in enumerate(([], sample(name))):
        convert(files, out := tmp_path / f"out{i}", "W8A8", ids)
        errors.append(float(np.square(logits(out, name) - exact).mean()))
    plain, smoothed = errors
    assert smoothed < 0.02 * plain


def test_layers_run_as_the_model_does(tmp_path: Path) -> None:
    """To the logits of the float model; and the first matrices multiply the normed embedding."""
    name, ids = "llama3_gqa", token_ids("llama3_gqa", "short", 41)
    source = checkpoint(name, tmp_path / "source")
    files = open_model(source)
    values, eps = canonical(files), files.spec.norm_eps
    run, found = Calibration(files.spec, values["embed"], ids), []
    for i in range(len(files.spec.layers)):
        prefix = f"layers.{i}."
        found.append(run.layer(i, {r.removeprefix(prefix): v for r, v in values.items() if r.startswith(prefix)}))
    head = values["embed" if files.spec.tied_head else "head"]
    wanted = logits(source, name)
    made = rms_norm(run.rows, values["final_norm"], eps) @ head.T
    assert np.abs(made - wanted).max() < 1e-5 * np.abs(wanted).max()
    first = rms_norm(values["embed"][ids], values["layers.0.attn_norm"], eps)
    for role in "qkv":
        np.testing.assert_allclose(found[0][role], np.sqrt(np.square(first).mean(axis=0)), rtol=1e-5)


def test_a_model_in_w8a8_is_not_smoothed_again(tmp_path: Path) -> None:
    name = "llama_tied"
    convert(open_model(checkpoint(name, tmp_path / "source")), tmp_path / "first", "W8A8", sample(name))
    convert(open_model(tmp_path / "first"), tmp_path / "second", "W8A8", sample(name))
    first, second = ((tmp_path / out / "model.safetensors").read_bytes() for out in ("first", "second"))
    assert first == second


RMS = arrays(np.float32, 24, elements=st.one_of(st.just(0.0), st.floats(2.0**-20, 2.0**20, width=32)))


@given(RMS, RMS)
def test_factors_balance_inputs_and_weights(inputs: np.ndarray, weights: np.ndarray) -> None:
    s = balance(inputs, weights)
    assert np.isfinite(s).all()
    assert (s > 0).all()
    assert abs(np.log2(s.astype(np.float64)).mean()) < 1e-3
    held = (inputs > inputs.max() * 2.0**-16) & (weights > weights.max() * 2.0**-16)
    ratios = (inputs / s)[held] / (weights * s)[held]
    if len(ratios):
        np.testing.assert_allclose(ratios, ratios[0], rtol=1e-3)

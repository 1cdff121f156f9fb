"""A model's own sampling defaults: where they are read, what they yield to, and what is not believed."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drut import LLM, SamplingParams
from drut.engine.request.defaults import model_defaults
from drut.engine.request.params import FilledParams
from drut.model.model import open_model
from drut.server.config import ServerConfig
from tests.cli import tiny
from tests.golden.weights import write_checkpoint

RECOMMENDED = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}
KEYS = {"temperature": "temp", "repetition_penalty": "penalty_repeat"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint("llama_tied", tmp_path_factory.mktemp("hf") / "m")


def read(path: Path) -> SamplingParams:
    files = open_model(path)
    try:
        return model_defaults(files)
    finally:
        files.close()


def of_json(directory: Path, data: object) -> SamplingParams:
    text = data if isinstance(data, str) else json.dumps(data)
    (directory / "generation_config.json").write_text(text)
    return read(directory)


def of_gguf(folder: Path, **values: Any) -> SamplingParams:
    keys = {f"general__sampling__{KEYS.get(name, name)}": value for name, value in values.items()}
    path = folder / "tiny.gguf"
    path.write_bytes(tiny.model(**keys))
    return read(path)


def test_a_directory_has_those_of_generation_config(directory: Path) -> None:
    other = {"eos_token_id": [1, 2], "do_sample": True, "top_p": None, "transformers_version": "4.53.0"}
    assert of_json(directory, other | RECOMMENDED) == SamplingParams(**RECOMMENDED)
    greedy = {"do_sample": False, "temperature": 0.7, "repetition_penalty": 1.1}
    assert of_json(directory, greedy) == SamplingParams(temperature=0, repetition_penalty=1.1)
    assert of_json(directory, {"top_k": -1}) == SamplingParams(top_k=0)
    (directory / "generation_config.json").unlink()
    assert read(directory) == SamplingParams()


def test_a_gguf_file_has_those_of_its_keys(tmp_path: Path) -> None:
    assert of_gguf(tmp_path, **RECOMMENDED) == SamplingParams(**RECOMMENDED)
    assert of_gguf(tmp_path) == SamplingParams()


@pytest.mark.parametrize(("data", "words"), [
    ({"temperature": "hot", "top_k": 5}, "temperature must be a finite number, not 'hot'"),
    ({"temperature": -1, "top_k": 5}, "temperature must be from 0 to 100, not -1"),
    ({"top_p": 0, "top_k": 5}, "top_p must be above 0"), ({"min_p": True, "top_k": 5}, "min_p must be a finite number"),
    ({"repetition_penalty": 1e300, "top_k": 5}, "repetition_penalty must be from 0.01 to 100")])
def test_a_value_that_no_request_could_have_is_ignored_with_a_warning(directory: Path, data: object,
                                                                      words: str) -> None:
    with pytest.warns(UserWarning, match=f"generation_config.json: {words}.*ignored"):
        assert of_json(directory, data) == SamplingParams(top_k=5)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"top_k": 1, "top_k": 2}', '{"temperature": 1e999}'])
def test_a_damaged_file_is_ignored_with_a_warning(directory: Path, text: str) -> None:
    with pytest.warns(UserWarning, match="generation_config"):
        assert of_json(directory, text) == SamplingParams()


def test_what_a_request_sets_comes_before_the_models_default_and_that_before_1(tmp_path: Path) -> None:
    model = SamplingParams(temperature=0.6, top_k=20)
    filled = SamplingParams(temperature=0.0, n=2, min_tokens=3).filled(model)
    assert filled == FilledParams(temperature=0.0, top_k=20, n=2, min_tokens=3)
    assert SamplingParams().filled(SamplingParams()) == FilledParams(temperature=1.0, top_p=1.0, top_k=0, min_p=0.0)
    assert filled.filled(SamplingParams(top_k=7)) == filled
    assert ServerConfig(top_k=5, min_p=0.0).sampling(replace(model, min_p=0.5)) == SamplingParams(
        temperature=0.6, top_k=5, min_p=0.0)


def test_the_engine_uses_them_unless_a_setting_turns_them_off(tmp_path: Path) -> None:
    """Greedy where the model recommends it: two requests without a seed are alike."""
    path = tmp_path / "greedy.gguf"
    path.write_bytes(tiny.model(general__sampling__temp=0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with LLM(path, backend="numpy", max_model_len=100) as llm:
            assert len({answer.text for answer in llm.generate("hello", SamplingParams(max_tokens=20, n=4))}) == 1
            assert llm.submit("hello", SamplingParams(temperature=0.5))[0].request.params.temperature == 0.5
        with LLM(path, backend="numpy", generation_config="none", max_model_len=100) as llm:
            assert len({answer.text for answer in llm.generate("hello", SamplingParams(max_tokens=20, n=4))}) > 1


def test_a_text_has_a_maximum_of_tokens_and_a_conversation_ends_with_the_context(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny.model(llama__context_length=400))
    free = SamplingParams(ignore_eos=True)
    with LLM(path) as llm:
        assert llm.generate("hi", free)[0].completion_tokens == 256
        assert llm.generate("hi", replace(free, min_tokens=300))[0].completion_tokens == 300
        assert llm.chat([{"role": "user", "content": "hi"}], free)[0].completion_tokens > 350


def test_a_file_without_such_keys_has_those_of_its_entry_in_the_catalogue(tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUT_HOME", str(tmp_path))
    path = tmp_path / "tiny.gguf"
    (tmp_path / "models.toml").write_text(f'[gone]\npath = "{tmp_path}/none.gguf"\nsampling = {{ top_k = 9 }}\n'
                                          f'[mine]\npath = "{path}"\nsampling = {{ temperature = 0.2, top_p = 0.9 }}\n')
    assert of_gguf(tmp_path) == SamplingParams(temperature=0.2, top_p=0.9)
    assert of_gguf(tmp_path, top_k=3) == SamplingParams(top_k=3)
    of_gguf(tmp_path)
    path.rename(tmp_path / "other.gguf")
    assert read(tmp_path / "other.gguf") == SamplingParams()


def test_what_is_filled_is_not_filled_again() -> None:
    """The server fills a request, and the engine takes it as it is."""
    filled = SamplingParams(top_k=3).filled(SamplingParams(**RECOMMENDED))
    assert filled.filled(SamplingParams(temperature=2.0)) is filled

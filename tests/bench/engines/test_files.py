from __future__ import annotations

import json
from pathlib import Path

import pytest

from drut.bench.engines.engine import EngineFiles
from drut.bench.engines.files import load_model_files, save_model_files
from drut.errors import RequestError


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    files = EngineFiles("m", "smollm2-135m-instruct", gguf=tmp_path / "m.gguf", label="x")
    save_model_files(files, tmp_path / "m.json")
    assert load_model_files(tmp_path / "m.json") == files


def test_relative_paths_are_from_the_files_folder_on(tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "m.json").write_text('{"name": "m", "tokenizer": "t", "hf": "hf", "mlx": null}')
    assert load_model_files(tmp_path / "m.json") == EngineFiles("m", "t", hf=tmp_path / "hf")


@pytest.mark.parametrize(("given", "why"), [
    ({"name": "m"}, "required field `tokenizer`"),
    ({"name": 1, "tokenizer": "t"}, "Expected"),
    ({"name": "m", "tokenizer": None}, "required field `tokenizer`"),
    ({"name": "m", "tokenizer": "t", "onnx": "x"}, "unknown field 'onnx'"),
    ({"name": "m", "tokenizer": "t", "gguf": "no.gguf"}, r"gguf: .*no\.gguf does not exist"),
    ([], "Expected"),
])
def test_what_is_no_such_file_is_refused_by_name(tmp_path: Path, given: object, why: str) -> None:
    (tmp_path / "m.json").write_text(json.dumps(given))
    with pytest.raises(RequestError, match=why) as caught:
        load_model_files(tmp_path / "m.json")
    assert "m.json" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no\.json: No such file"):
        load_model_files(tmp_path / "no.json")
    (tmp_path / "big.json").write_bytes(b" " * (2 << 20))
    with pytest.raises(RequestError, match="more than"):
        load_model_files(tmp_path / "big.json")

"""A head that a checkpoint stores is used, counted and kept, whatever its config's tie_word_embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut import LLM
from drut.errors import ModelFileError, UnsupportedError
from drut.model.convert import convert
from drut.model.describe import describe
from drut.model.model import ModelFiles, open_model
from tests.golden.variants import variant
from tests.golden.weights import config, tensors, token_ids, write_checkpoint, write_safetensors
from tests.model.convert.test_convert import tokenizer
from tests.model.test_configs import LAST_ROWS, ROW, TOLERANCE

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
OWN = {"llama-own-head": "llama3_gqa", "qwen2-own-head": "qwen2_untied"}  # variant: its checkpoint
NOTICE = "lm_head.weight differs and is used"


def write(folder: Path, name: str = "llama3_gqa", cfg: dict[str, Any] | None = None,
          changes: dict[str, np.ndarray | None] | None = None) -> Path:
    """The checkpoint with some tensors replaced or left out."""
    write_checkpoint(name, folder, cfg)
    arrays = dict(tensors(name)) | (changes or {})
    write_safetensors(folder / "model.safetensors", [(key, a) for key, a in arrays.items() if a is not None])
    return folder


def opened(path: Path, logged: pytest.LogCaptureFixture, notices: int = 0) -> ModelFiles:
    """The model, which logs so many notices of its head as it is opened."""
    logged.clear()
    files = open_model(path)
    assert [NOTICE in line for line in logged.messages] == [True] * notices
    return files


def logits(path: Path, ids: list[int]) -> np.ndarray:
    with LLM(path, kv_dtype="fp32", threads=1) as llm:
        return llm.logits(ids)


@pytest.mark.parametrize("name", OWN)
def test_it_is_noticed_and_counted(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_checkpoint(OWN[name], tmp_path / name, variant(name))
    files = opened(folder, caplog, notices=1)
    found, alone = describe(files), describe(opened(write_checkpoint(OWN[name], tmp_path / "untied"), caplog))
    assert (found.tied_head, found.parameters, found.problems) == (False, alone.parameters, ())


@pytest.mark.parametrize("out", ["out.gguf", "out"])
@pytest.mark.parametrize("name", OWN)
def test_it_is_converted(name: str, out: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_checkpoint(OWN[name], tmp_path / name, variant(name))
    tokenizer(config(OWN[name])["vocab_size"]).save(str(folder / "tokenizer.json"))
    files = opened(folder, caplog, notices=1)
    convert(files, tmp_path / out)
    assert not opened(tmp_path / out, caplog).spec.tied_head
    last = logits(tmp_path / out, token_ids(OWN[name], name, ROW))[-1]
    assert np.abs(last - LAST_ROWS[name]).max() < TOLERANCE * np.abs(LAST_ROWS[name]).max()


def test_a_copy_of_the_embedding_stays_tied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    embed = dict(tensors("llama_tied"))[EMBED]
    files = opened(write(tmp_path / "copy", "llama_tied", changes={HEAD: embed}), caplog)
    files.check()
    assert files.spec.tied_head


def test_the_embedding_may_lie_under_the_name_of_the_head(tmp_path: Path) -> None:
    """Of two names of one tensor some writers of safetensors keep the first."""
    embed, ids = dict(tensors("llama_tied"))[EMBED], token_ids("llama_tied", "head", 20)
    folder = write(tmp_path / "head", "llama_tied", changes={HEAD: embed, EMBED: None})
    both = logits(write_checkpoint("llama_tied", tmp_path / "both"), ids)
    assert np.array_equal(logits(folder, ids), both)


def test_a_head_of_another_shape_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    head = dict(tensors("llama3_gqa"))[HEAD]
    cfg = config("llama3_gqa") | {"tie_word_embeddings": True}
    padded = write(tmp_path / "padded", cfg=cfg, changes={HEAD: np.concatenate([head, head[:4]])})
    files = opened(padded, caplog, notices=1)
    with pytest.raises(ModelFileError, match=r"'lm_head\.weight' has shape"):
        files.check()


@pytest.mark.parametrize(("outer", "inner", "tied"), [(None, False, True), (True, False, True), (False, True, False)])
def test_of_a_model_that_sees_the_whole_says_whether_it_is_tied(outer: bool | None, inner: bool, tied: bool,
                                                                tmp_path: Path) -> None:
    text = {key: value for key, value in config("gemma3").items() if key != "architectures"}
    cfg = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
           "text_config": text | {"tie_word_embeddings": inner}}
    if outer is not None:
        cfg["tie_word_embeddings"] = outer
    (tmp_path / "config.json").write_text(json.dumps(cfg))
    write_safetensors(tmp_path / "model.safetensors", [(f"language_model.{n}", a) for n, a in tensors("gemma3")])
    with pytest.warns(UserWarning, match="0 vision tensors"):
        assert open_model(tmp_path).spec.tied_head is tied


def test_a_text_part_of_another_type_is_refused(tmp_path: Path) -> None:
    cfg = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
           "text_config": {"model_type": "llama"}}
    (tmp_path / "config.json").write_text(json.dumps(cfg))
    with pytest.raises(UnsupportedError, match="text_config: model_type 'llama'"):
        open_model(tmp_path)

"""Several chat templates of a model: which one a conversation gets, and where files have them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from drut.errors import ModelFileError, UnsupportedError
from drut.model.template.templates import ChatTemplates
from drut.model.tokenizer import Tokenizer, from_gguf, from_hf
from drut.model.tokenizer.chat import gguf_keys, hf_value
from drut.parse.choose import marks, tool_format

HELLO = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
DEFAULT = "[{{ messages[0].content }}]</think>"
TOOL_USE = "USE{{ tools | tojson }}<tool_call></tool_call>"
RAG = "RAG{{ documents }}"


def hf(folder: Path, configured: Any = None, **files: str) -> Tokenizer:
    """A directory with these templates; `__` in a name is a folder."""
    backend = Backend(models.BPE({"a": 0, "b": 1}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    config = {} if configured is None else {"chat_template": configured}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return from_hf(folder)


def gguf(**templates: str) -> Tokenizer:
    metadata: dict[str, Any] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
                                "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": [1, 1],
                                "tokenizer.ggml.merges": []}
    return from_gguf(metadata | gguf_keys(templates), Path("m.gguf"))


def named(**templates: str) -> list[dict[str, str]]:
    return [{"name": name, "template": text} for name, text in templates.items()]


FOLDER = "additional_chat_templates__"


@pytest.mark.parametrize("where", ["list", "object", "files", "files and default in the configuration", "gguf"])
def test_tool_use_is_for_conversations_with_tools(where: str, tmp_path: Path) -> None:
    tokenizer = {
        "list": lambda: hf(tmp_path, named(default=DEFAULT, tool_use=TOOL_USE, rag=RAG)),
        "object": lambda: hf(tmp_path, {"default": DEFAULT, "tool_use": TOOL_USE, "rag": RAG}),
        "files": lambda: hf(tmp_path, chat_template_dot_jinja=DEFAULT, **{
            f"{FOLDER}tool_use_dot_jinja": TOOL_USE, f"{FOLDER}rag_dot_jinja": RAG}),
        "files and default in the configuration": lambda: hf(tmp_path, DEFAULT, **{
            f"{FOLDER}tool_use_dot_jinja": TOOL_USE, f"{FOLDER}rag_dot_jinja": RAG}),
        "gguf": lambda: gguf(default=DEFAULT, tool_use=TOOL_USE, rag=RAG),
    }[where]()
    assert tokenizer.chat_templates == {"default": DEFAULT, "tool_use": TOOL_USE, "rag": RAG}
    templates = ChatTemplates.of(tokenizer)
    assert templates.render(HELLO) == "[hi]</think>"
    assert templates.render(HELLO, TOOLS) == f"USE{json.dumps(TOOLS)}<tool_call></tool_call>"
    assert tool_format("auto", templates.with_tools).name == "hermes"
    assert marks("auto", templates) == ("<think>", "</think>")


@pytest.mark.parametrize(("templates", "plain", "with_tools"), [
    ({"default": DEFAULT}, DEFAULT, DEFAULT),
    ({"tool_use": TOOL_USE}, TOOL_USE, TOOL_USE),
    ({"rag": RAG}, RAG, RAG),
    ({"rag": RAG, "tool_use": TOOL_USE}, TOOL_USE, TOOL_USE),
    ({"rag": RAG, "default": DEFAULT}, DEFAULT, DEFAULT),
])
def test_one_that_fits_is_enough(templates: dict[str, str], plain: str, with_tools: str, tmp_path: Path) -> None:
    for tokenizer in (hf(tmp_path, named(**templates)), gguf(**templates)):
        made = ChatTemplates.of(tokenizer)
        assert (made.plain.source, made.with_tools.source) == (plain, with_tools)


def test_none_that_fits_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"has no chat template"):
        ChatTemplates.of(hf(tmp_path))
    with pytest.raises(UnsupportedError, match=r"'rag', 'x', and none called 'default' or 'tool_use'"):
        ChatTemplates.of(hf(tmp_path, named(rag=RAG, x=RAG)))


def test_files_of_their_own_come_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = hf(tmp_path, named(default="old", tool_use=TOOL_USE), chat_template_dot_jinja=DEFAULT)
    assert made.chat_templates == {"default": DEFAULT}
    assert "'default', 'tool_use' of tokenizer_config.json" in caplog.text
    caplog.clear()
    same = hf(tmp_path, DEFAULT, chat_template_dot_json=json.dumps({"chat_template": "older"}))
    assert (same.chat_template, caplog.text) == (DEFAULT, "")


def test_the_file_of_older_processors_counts_where_nothing_else_is(tmp_path: Path) -> None:
    assert hf(tmp_path, chat_template_dot_json=json.dumps({"chat_template": DEFAULT})).chat_template == DEFAULT


@pytest.mark.parametrize("configured", [5, {"default": 5}, ["x"], [{"name": "default"}],
                                        [{"name": 1, "template": "x"}], named(default="x") * 99])
def test_what_is_no_template_is_named(configured: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="chat_template"):
        hf(tmp_path, configured)
    with pytest.raises(ModelFileError, match=r"tokenizer\.chat_template\.tool_use"):
        gguf(tool_use=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("templates", [{}, {"default": DEFAULT}, {"tool_use": TOOL_USE},
                                       {"default": DEFAULT, "tool_use": TOOL_USE}])
def test_what_is_written_is_read_again(templates: dict[str, str], tmp_path: Path) -> None:
    assert gguf(**templates).chat_templates == templates
    assert hf(tmp_path, hf_value(templates)).chat_templates == templates

"""`reasoning_effort` in the words of the template at hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drut.engine.request.output import Chunk
from drut.server.admission import QueuedRequest
from drut.server.openai.prompts import PromptProcessor
from drut.server.openai.reasoning import effort_variables
from tests.cli import tiny
from tests.server.scripted import ended, scripted

BOTH = {"thinking": True, "reasoning_effort": "max"}


@pytest.mark.parametrize(("source", "effort", "variables"), [
    ("{{ reasoning_effort }}</think>", "max", {"reasoning_effort": "max"}),
    ("{{ reasoning_effort }}</think>", "none", None),
    ("{{ reasoning_effort == 'none' }}</think>", "none", {"reasoning_effort": "none"}),
    ("{{ thinking_effort }}</think>", "low", {"thinking_effort": "low"}),
    ("{{ enable_thinking }}</think>", "minimal", {"enable_thinking": True}),
    ("{{ enable_thinking }}</think>", "none", {"enable_thinking": False}),
    ("{{ thinking }}{{ reasoning_effort }}</think>", "max", BOTH),
    ("{{ thinking }}{{ reasoning_effort }}</think>", "none", {"thinking": False}),
    ("plain</think>", "high", None), ("plain</think>", "none", None),
    ("plain", "none", {}), ("plain", "high", None), ("{{ reasoning_effort }}", None, {}),
])
def test_effort_is_what_the_template_looks_at(source: str, effort: str | None, variables: dict[str, object] | None,
                                              tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny.model(tokenizer__chat_template=source))
    assert effort_variables(effort, PromptProcessor.open(path, 100, 1000), ()) == variables


def test_what_changes_nothing_is_refused_where_fields_are_strict(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny.model(tokenizer__chat_template="{{ messages[-1].content }}"))

    async def script(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield ended("x")

    with scripted(path, script, strict_fields=True) as (running, _):
        for fields, param in (({"reasoning_effort": "high"}, "reasoning_effort"),
                              ({"chat_template_kwargs": {"enable_thinking": True}},
                               "chat_template_kwargs.enable_thinking")):
            error = running.chat("hi", **fields).error
            assert (error["code"], error["param"]) == ("unknown_parameter", param)
        assert running.chat("hi", reasoning_effort="none").status == 200

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.tiny import model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of two layers and bytes."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    path.write_bytes(model())
    return path


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-four lines of all three forms."""
    rows: list[dict[str, object]] = [{"prompt": f"question {i}"} for i in range(20)]
    rows += [{"messages": [{"role": "user", "content": f"message {i}"}]} for i in range(2)]
    rows += [{"prompt": [104, 105, i + 97], "max_tokens": 3} for i in range(2)]
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path

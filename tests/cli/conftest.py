from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.virtual import virtual_time
from tests.cli.tiny import model

__all__ = ["virtual_time"]


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    path.write_bytes(model())
    return path


@pytest.fixture
def tiny(tiny_file, tmp_path, monkeypatch) -> str:
    """The path of a tiny model, in an empty home."""
    monkeypatch.setenv("DRUT_HOME", str(tmp_path / "home"))
    return str(tiny_file)

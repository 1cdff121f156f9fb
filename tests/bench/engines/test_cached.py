from __future__ import annotations

from pathlib import Path

import pytest

from drut.bench.engines import cached
from drut.bench.engines.cached import read_ahead
from drut.bench.engines.engine import EngineFiles, Launch


def test_what_an_engine_is_started_on_is_read_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf, hf = tmp_path / "m.gguf", tmp_path / "hf"
    (hf / "more").mkdir(parents=True)
    for path, size in ((gguf, 3000), (hf / "a.safetensors", 500), (hf / "config.json", 20)):
        path.write_bytes(b"x" * size)
    files = EngineFiles("m", "", gguf=gguf, hf=hf)
    assert read_ahead(Launch("", "m", ("serve", str(gguf), "--threads", "2")), files) == 3000
    assert read_ahead(Launch("", "m", ("serve", str(hf))), files) == 520
    assert read_ahead(Launch("", "m"), files) == read_ahead(Launch("", "m", ("serve",)), EngineFiles("m", "")) == 0
    monkeypatch.setattr(cached, "MAX_SHARE", 0.0)
    assert read_ahead(Launch("", "m", (str(gguf),)), files) == 0

"""GPUs through a stand-in for NVML; what it does not report is missing, not zero."""

from __future__ import annotations

import importlib

import pytest

from drut.bench.resources.gpus import Gpus
from drut.errors import UnsupportedError
from tests.bench.resources.nvml import FakeNvml


def test_two_gpus() -> None:
    nvml = FakeNvml()
    gpus = Gpus(nvml)
    for _ in range(3):
        gpus.sample()
    new, old = gpus.use()
    assert (new.name, new.use_share, new.joules) == ("Fake 0", pytest.approx(0.4), 3)
    assert (new.watts, new.max_watts) == (200, 300)
    assert (new.memory_bytes, new.peak_used_bytes) == (1000, 300)
    assert (old.name, old.use_share, old.watts, old.max_watts, old.joules) == (
        "Fake 1", pytest.approx(0.4), None, None, None)  # the second of its three readings failed
    gpus.close()
    assert not nvml.open


def test_why_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="none found"):
        Gpus(FakeNvml(0))

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UnsupportedError, match="nvidia-ml-py is not installed"):
        Gpus()

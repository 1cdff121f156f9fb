from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.models import write_bytes_model
from tests.server.rig import Running, serving


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="session")
def server(model_path: Path) -> Iterator[Running]:
    """Shared by all tests: whatever they do to it, it must go on."""
    with serving(model_path) as running:
        yield running


@pytest.fixture(autouse=True)
def _lives(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that used the shared server, nothing is open and a plain request is answered."""
    yield
    if "server" in request.fixturenames:
        running: Running = request.getfixturevalue("server")
        running.until_idle()
        running.assert_well()

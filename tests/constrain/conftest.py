from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.constrain.walking import Walker, walker_over
from tests.engine.models import write_bytes_model


@pytest.fixture(scope="session")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walker]:
    """Over a vocabulary of the 256 bytes, BOS 256 and EOS 257."""
    with walker_over(write_bytes_model(tmp_path_factory.mktemp("constrain"))) as walker:
        yield walker

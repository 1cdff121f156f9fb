from __future__ import annotations

from collections.abc import Iterator

import pytest

from drut.model.model import open_model
from tests.constrain.walking import Walker
from tests.engine.models import write_bytes_model


@pytest.fixture(scope="session")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walker]:
    """Over a vocabulary of the 256 bytes, BOS 256 and EOS 257."""
    files = open_model(write_bytes_model(tmp_path_factory.mktemp("constrain")))
    tokenizer = files.tokenizer()
    assert tokenizer is not None
    walker = Walker(tokenizer, files.spec.vocab)
    files.close()
    yield walker
    walker.grammars.close()

import pytest

from drut.model.notices import warn_once


@pytest.fixture(autouse=True)
def fresh_notices():
    """A test sees the warnings of the files that it opens, whatever another test opened."""
    warn_once.cache_clear()

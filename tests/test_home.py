from __future__ import annotations

from pathlib import Path

import pytest

from drut.home import home


@pytest.mark.parametrize(("environ", "expected"), [
    ({"DRUT_HOME": "/models", "XDG_CACHE_HOME": "/cache"}, "/models"),
    ({"DRUT_HOME": "", "XDG_CACHE_HOME": "/cache"}, "/cache/drut"),
    ({"XDG_CACHE_HOME": "relative"}, "~/.cache/drut"),
    ({"DRUT_HOME": "~/models"}, "~/models"),
])
def test_home(environ: dict[str, str], expected: str) -> None:
    assert home(environ) == Path(expected).expanduser()


def test_home_is_absolute() -> None:
    assert home({"DRUT_HOME": "here"}) == Path.cwd() / "here"

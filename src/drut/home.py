"""The folder of this user's models and measurements."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def home(environ: Mapping[str, str] | None = None) -> Path:
    """Returns the folder: DRUT_HOME, else XDG_CACHE_HOME/drut, else ~/.cache/drut. It need not exist."""
    environ = os.environ if environ is None else environ
    if environ.get("DRUT_HOME"):
        return Path(environ["DRUT_HOME"]).expanduser().absolute()
    cache = environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "drut"

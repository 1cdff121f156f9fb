"""Notices about the files of a model."""

from __future__ import annotations

import logging
from functools import lru_cache

_log = logging.getLogger("drut.model")


@lru_cache(maxsize=1024)
def warn_once(text: str) -> None:
    """Logs a warning once per process, so that opening the same files again does not repeat it."""
    _log.warning("%s", text)

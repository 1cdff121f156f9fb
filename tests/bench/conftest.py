from __future__ import annotations

from hypothesis import settings

from tests.bench.virtual import virtual_contestants, virtual_time

__all__ = ["virtual_contestants", "virtual_time"]

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")

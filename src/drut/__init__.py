"""Drut: LLM inference that is exact, explained and fast."""

from __future__ import annotations

__version__ = "0.1.0"

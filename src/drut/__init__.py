"""Drut: LLM inference that is exact, explained and fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drut.constrain import Constraint as Constraint
    from drut.engine.llm import LLM as LLM
    from drut.engine.request.output import AnswerError as AnswerError
    from drut.engine.request.output import Chunk as Chunk
    from drut.engine.request.output import Completion as Completion
    from drut.engine.request.params import SamplingParams as SamplingParams
    from drut.engine.service.async_engine import AsyncEngine as AsyncEngine

__version__ = "0.1.0"
__all__ = ["LLM", "AnswerError", "AsyncEngine", "Chunk", "Completion", "Constraint", "SamplingParams"]

_HOME = {
    "LLM": "drut.engine.llm",
    "AnswerError": "drut.engine.request.output",
    "AsyncEngine": "drut.engine.service.async_engine",
    "Chunk": "drut.engine.request.output",
    "Completion": "drut.engine.request.output",
    "Constraint": "drut.constrain",
    "SamplingParams": "drut.engine.request.params",
}


def __getattr__(name: str) -> Any:
    """Loads the public classes on first use, so that `drut --help` starts fast."""
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'drut' has no attribute {name!r}")

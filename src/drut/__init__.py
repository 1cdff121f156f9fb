"""Drut: LLM inference that is exact, explained and fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drut.config import EngineConfig as EngineConfig
    from drut.constrain import Constraint as Constraint
    from drut.constrain import ReasoningSpec as ReasoningSpec
    from drut.engine.llm import LLM as LLM
    from drut.engine.request.output import AnswerError as AnswerError
    from drut.engine.request.output import Chunk as Chunk
    from drut.engine.request.output import Completion as Completion
    from drut.engine.request.params import SamplingParams as SamplingParams
    from drut.engine.service.async_engine import AsyncEngine as AsyncEngine
    from drut.errors import DownloadError as DownloadError
    from drut.errors import DrutError as DrutError
    from drut.errors import EngineDeadError as EngineDeadError
    from drut.errors import ModelFileError as ModelFileError
    from drut.errors import RequestError as RequestError
    from drut.errors import UnsupportedError as UnsupportedError

__version__ = "0.1.0"
__all__ = [
    "LLM", "AnswerError", "AsyncEngine", "Chunk", "Completion", "Constraint", "DownloadError", "DrutError",
    "EngineConfig", "EngineDeadError", "ModelFileError", "ReasoningSpec", "RequestError", "SamplingParams",
    "UnsupportedError",
]

_HOME = {
    "LLM": "drut.engine.llm",
    "AnswerError": "drut.engine.request.output",
    "AsyncEngine": "drut.engine.service.async_engine",
    "Chunk": "drut.engine.request.output",
    "Completion": "drut.engine.request.output",
    "Constraint": "drut.constrain",
    "EngineConfig": "drut.config",
    "ReasoningSpec": "drut.constrain",
    "SamplingParams": "drut.engine.request.params",
}


def __getattr__(name: str) -> Any:
    """Loads the public classes on first use, so that `drut --help` starts fast."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(_HOME.get(name, "drut.errors")), name)
    raise AttributeError(f"module 'drut' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

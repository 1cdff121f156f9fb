"""The interface of an engine to a benchmark: how it is started on a model, and how requests are sent to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import msgspec

from drut.errors import DrutError


class CannotRunError(DrutError):
    """Raised before an engine is started if it cannot run here: it is not installed, or reads none of the available
    files."""


class EngineFailedError(DrutError):
    """Raised if an engine was started and did not become ready, or ended; the text ends with the last lines of its
    log."""


class EngineFiles(msgspec.Struct, frozen=True):
    """The files of one model in the layouts that engines read, None if not available. `label` names differences between
    them, such as the format of their weights; `tokenizer` is an argument of `open_tokenizer`."""

    name: str
    tokenizer: str
    gguf: Path | None = None
    hf: Path | None = None
    openvino: Path | None = None
    mlx: Path | None = None
    label: str = ""


class Options(msgspec.Struct, frozen=True):
    """Settings that every engine maps to its own flags: threads, maximum tokens of prompt and response together,
    maximum sequences at a time. `flags` are further flags, passed unchanged."""

    threads: int
    context: int = 2048
    sequences: int = 16
    flags: tuple[str, ...] = ()


class Launch(msgspec.Struct, frozen=True):
    """A process to start and how to send requests to it. `argv` is empty for a server that already runs.

    `ready`: a path that answers 200 once the engine serves, or "completion" if only a first completion shows it.
    `exact` and `body` go into every request (`Target`); `token_ids`: prompts may be token ids. `remarks` are shown with
    every figure.
    """

    url: str
    model: str
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    ready: str = "/health"
    ready_timeout_s: float = 300.0
    exact: dict[str, Any] | None = None
    body: dict[str, Any] = {}
    token_ids: bool = True
    metrics: bool = False
    versions: dict[str, str] = {}
    weights: str = ""  # the format that it reads: "GGUF Q8_0", "bf16", ...
    remarks: tuple[str, ...] = ()


class BenchEngine(Protocol):
    """An engine. Each has its own file in this package; `registry.py` maps names to them."""

    name: str
    title: str
    verified: bool  # whether it was seen to run; if not, only its command line was tested

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Returns the launch at the engine's best CPU configuration. Raises CannotRunError."""
        ...

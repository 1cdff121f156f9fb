"""What an engine is to a benchmark: how it is started on a model, and how it wants to be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import msgspec

from drut.errors import DrutError


class CannotRunError(DrutError):
    """An engine that cannot run here, before it was started: not installed, or it reads none of the files at hand."""


class EngineFailedError(DrutError):
    """An engine that was started and did not come up, or ended; the message ends with the last lines of its log."""


class ModelFiles(msgspec.Struct, frozen=True):
    """One model in the layouts that engines read, None where it is not at hand. `label` says what differs between them,
    such as the format of their weights; `tokenizer` is what `open_tokenizer` takes."""

    name: str
    tokenizer: str
    gguf: Path | None = None
    hf: Path | None = None
    openvino: Path | None = None
    mlx: Path | None = None
    label: str = ""


class Options(msgspec.Struct, frozen=True):
    """How engines are set up, each by its own flags: threads, tokens of the longest prompt and answer, sequences at a
    time. `flags` are further ones, as they are."""

    threads: int
    context: int = 2048
    sequences: int = 16
    flags: tuple[str, ...] = ()


class Launch(msgspec.Struct, frozen=True):
    """A process to start and how to talk with it. `argv` is empty for a server that runs already.

    `ready`: a path that answers 200 once it serves, or "completion" where only a first completion can tell. `exact` and
    `body` go into every request (`Target`); `token_ids`: prompts may be ids. `remarks` are told beside every figure.
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
    weights: str = ""  # what it reads: "GGUF Q8_0", "bf16", ...
    remarks: tuple[str, ...] = ()


class Engine(Protocol):
    """One file each in this package; `registry.py` has them by name."""

    name: str
    title: str
    verified: bool  # seen to run, not only its launch against a recorded process

    def launch(self, files: ModelFiles, options: Options, port: int) -> Launch:
        """How it is started at its best CPU configuration. Raises CannotRunError."""
        ...

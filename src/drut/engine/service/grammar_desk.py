"""Compiles grammars before the requests that need them arrive, while steps run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from drut.constrain.grammar_compiler import NO_TEXT, GrammarCompiler
from drut.engine.service.messages import Compile, Compiled, Failed, FromEngine
from drut.errors import RequestError

STOPPED = "the engine was stopped"


class GrammarDesk:
    """Answers each Compile message with Compiled or Failed, sent from the compiler's thread. Any thread may call it."""

    def __init__(self, grammars: GrammarCompiler | None, send: Callable[[list[FromEngine]], None]) -> None:
        """`grammars`: None if no constraint can be served; `send` is called from several threads."""
        self._grammars, self._send = grammars, send

    def take(self, message: Compile) -> None:
        """Starts a compilation, or joins one that is cached or running. Never waits and never raises."""
        if self._grammars is None:
            return self._send([Failed(message.id, NO_TEXT, True)])
        try:
            future = self._grammars.compile(message.constraint).future
        except RuntimeError:  # the compiler's thread has ended
            return self._send([Failed(message.id, STOPPED, False)])
        future.add_done_callback(partial(self._answer, message.id))

    def _answer(self, name: str, future: Future[Any]) -> None:
        if future.cancelled():
            self._send([Failed(name, STOPPED, False)])
        elif (error := future.exception()) is None:
            self._send([Compiled(name)])
        elif isinstance(error, RequestError):
            self._send([Failed(name, str(error), True)])
        else:
            self._send([Failed(name, f"{type(error).__name__}: {error}", False)])

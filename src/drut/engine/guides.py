"""Requests whose grammar is still being compiled: they wait, and all others go on."""

from __future__ import annotations

from collections.abc import Iterable

from drut.constrain.compiler import Grammars
from drut.constrain.guide import Guide
from drut.constrain.thought import ThoughtWatch
from drut.engine.params import SamplingParams
from drut.engine.request import Request
from drut.errors import RequestError

PATIENCE_S = 0.05  # for a grammar that is all there is to wait for; messages are looked at so often


class Guides:
    """Makes the guides of an engine's requests, and knows whose grammar is not there yet."""

    def __init__(self, grammars: Grammars | None) -> None:
        """`grammars`: None where no constraint can be served."""
        self.grammars = grammars
        self._compiling: list[Request] = []

    def guide(self, params: SamplingParams, thought: ThoughtWatch | None) -> Guide | None:
        """Of an answer; None where it is free. RequestError where it cannot be constrained."""
        if params.constraint is None:
            return None
        if self.grammars is None:
            raise RequestError("constraint: this model has no tokenizer, so there is no text to constrain")
        return self.grammars.guide(params.constraint, thought, ignore_eos=params.ignore_eos)

    def add(self, requests: Iterable[Request]) -> None:
        """Those of them that have a guide are waited for."""
        self._compiling += [request for request in requests if request.guide is not None]

    def wait(self) -> None:
        """For a moment, where a grammar is not there yet."""
        if self._compiling and (guide := self._compiling[0].guide) is not None:
            guide.wait(PATIENCE_S)

    def open(self) -> list[Request]:
        """Lets those run whose grammar is there by now. Returns those whose grammar is none; `failure` says why."""
        waiting, failed = [], []
        for request in self._compiling:
            if request.guide is None or request.finish_reason is not None:
                continue
            if not request.guide.ready:
                waiting.append(request)
                continue
            request.guide.open()
            request.failure = request.guide.failure
            if request.failure is not None:
                failed.append(request)
        self._compiling = waiting
        return failed

    def close(self) -> None:
        if self.grammars is not None:
            self.grammars.close()

"""A real HTTP side over an engine whose every chunk is in the test's hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drut.config import EngineConfig
from drut.engine.output import Chunk, Completion
from drut.server.admission import Ask
from drut.server.config import ServerConfig
from drut.server.serve import Server
from drut.server.service import Loaded
from drut.server.texts import Texts
from tests.server.rig import Running, run_in_thread

Script = Callable[[Ask], AsyncIterator[Chunk]]


def said(text: str, index: int = 0) -> Chunk:
    return Chunk(text, [ord(c) for c in text], None, index)


def ended(text: str = "", index: int = 0, reason: str = "stop") -> Chunk:
    completion = Completion(text, [], reason, 1, 0, 1, 0, index)
    return Chunk(text, [ord(c) for c in text], completion, index)


class ScriptedTicket:
    """Plays a script until it is cancelled."""

    def __init__(self, chunks: AsyncIterator[Chunk]) -> None:
        self._chunks, self._cancelled = chunks, asyncio.Event()
        self.cancelled = self.exhausted = False

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        stop = asyncio.create_task(self._cancelled.wait())
        while not self.cancelled:
            step: asyncio.Task[Chunk] = asyncio.create_task(anext(self._chunks))  # type: ignore[arg-type]
            await asyncio.wait((step, stop), return_when=asyncio.FIRST_COMPLETED)
            if not step.done():
                step.cancel()
                return
            try:
                yield step.result()
            except StopAsyncIteration:
                self.exhausted = True
                return

    def cancel(self) -> None:
        if not self.exhausted:
            self.cancelled = True
            self._cancelled.set()


class ScriptedAdmission:
    def __init__(self, script: Script) -> None:
        self.script, self.asks, self.tickets = script, list[Ask](), list[ScriptedTicket]()

    def submit(self, ask: Ask) -> ScriptedTicket:
        self.asks.append(ask)
        self.tickets.append(ScriptedTicket(self.script(ask)))
        return self.tickets[-1]


class ScriptedServer(Server):
    admission: ScriptedAdmission

    async def _run_engine(self) -> None:
        texts = Texts.open(self._path, 160)
        self.service.loaded = Loaded(texts, self.admission, "drut-scripted", 0)  # type: ignore[arg-type]
        self._tell("ready")
        await asyncio.Event().wait()


@contextmanager
def scripted(path: Path, script: Script, **settings: Any) -> Iterator[tuple[Running, ScriptedAdmission]]:
    """A server whose engine plays `script` for every prompt."""
    lines: list[str] = []
    config = ServerConfig.resolve({"port": 0, "served_model_name": "tiny"} | settings, {})
    server = ScriptedServer(str(path), path, config, EngineConfig.resolve({}, {}), lines.append)
    server.admission = ScriptedAdmission(script)
    with run_in_thread(server, lines) as running:
        yield running, server.admission

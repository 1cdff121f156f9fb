"""A real HTTP side over an engine whose every chunk is in the test's hands."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from drut.config import EngineConfig
from drut.constrain import Constraint
from drut.engine.request.output import Chunk, Completion
from drut.parse.narrowing import Bounds
from drut.server.admission import QueuedRequest, RequestRecord
from drut.server.admission.request_handle import OnChunk, OnEnd
from drut.server.config import ServerConfig
from drut.server.grammars import Compilers
from drut.server.life.serve import Server
from drut.server.openai.prompts import PromptProcessor
from drut.server.service import Loaded
from tests.server.rig import Running, run_in_thread

Script = Callable[[QueuedRequest], AsyncIterator[Chunk]]


def said(text: str, index: int = 0) -> Chunk:
    return Chunk(text, [ord(c) for c in text], None, index)


def ended(text: str = "", index: int = 0, reason: str = "stop") -> Chunk:
    completion = Completion(text=text, token_ids=[], finish_reason=reason, prompt_tokens=1, cached_tokens=0,
                            completion_tokens=1, seed=0, index=index)
    return Chunk(text, [ord(c) for c in text], completion, index)


class ScriptedTicket:
    """Plays a script until it is cancelled."""

    def __init__(self, ask: QueuedRequest, chunks: AsyncIterator[Chunk], on_chunk: OnChunk, on_end: OnEnd) -> None:
        self.record = RequestRecord(ask.id, ask.key, ask.priority, ask.params.n, 0.0)
        self._on_chunk, self._on_end = on_chunk, on_end
        self._player = asyncio.create_task(self._play(chunks))
        self.cancelled = False

    async def _play(self, chunks: AsyncIterator[Chunk]) -> None:
        error: Any = None
        try:
            async for chunk in chunks:
                self._on_chunk(chunk)
                if self.cancelled:
                    return
        except Exception as failure:
            error = failure
        self._on_end(error)

    def cancel(self) -> None:
        if not self._player.done() and not self.cancelled:
            self.cancelled = True
            self._player.cancel()
            self._on_end(None)


class ScriptedAdmission:
    def __init__(self, script: Script) -> None:
        self.script, self.asks, self.tickets = script, list[QueuedRequest](), list[ScriptedTicket]()

    def submit(self, ask: QueuedRequest, on_chunk: OnChunk, on_end: OnEnd) -> ScriptedTicket:
        self.asks.append(ask)
        self.tickets.append(ScriptedTicket(ask, self.script(ask), on_chunk, on_end))
        return self.tickets[-1]


class Lenient:
    """Finds fault with no constraint."""

    heard_at = math.inf

    async def compile(self, constraint: Constraint) -> None: ...


class ScriptedServer(Server):
    admission: ScriptedAdmission
    room = 160

    async def _run_engine(self) -> int:
        config = self.service.config
        texts = PromptProcessor.open(self._path, self.room, 10_000, tool_parser=config.tool_parser,
                                     reasoning_parser=config.reasoning_parser,
                                     tool_bounds=Bounds(config.tool_string_chars, config.tool_array_items))
        compilers = Compilers(Lenient(), seconds=1, patience_s=1, room=1 << 20)
        self.service.loaded = Loaded(texts, self.admission, compilers, "drut-scripted", 0)  # type: ignore[arg-type]
        over = asyncio.Event()
        self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, over.set)
        self._print_line("ready")
        await over.wait()
        return 0


@contextmanager
def scripted(path: Path, script: Script, *, sndbuf: int | None = None, room: int = 160,
             **settings: Any) -> Iterator[tuple[Running, ScriptedAdmission]]:
    """A server whose engine plays `script` for every prompt. `sndbuf`: what the system buffers for a reader."""
    lines: list[str] = []
    config = ServerConfig.resolve({"port": 0, "served_model_name": "tiny"} | settings, {})
    server = ScriptedServer(str(path), path, config, EngineConfig.resolve({}, {}), lines.append)
    if sndbuf is not None:
        server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
    server.room = room
    server.admission = ScriptedAdmission(script)
    with run_in_thread(server, lines) as running:
        yield running, server.admission

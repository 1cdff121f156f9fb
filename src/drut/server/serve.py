"""A server from start to end: the port first, so that it can say it is loading, then the model."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import uvicorn

from drut.config import EngineConfig
from drut.engine.async_engine import AsyncEngine
from drut.errors import DrutError, RequestError
from drut.server.admission import Admission, AdmissionLimits
from drut.server.app import App
from drut.server.auth import check_exposure, is_address
from drut.server.config import ServerConfig
from drut.server.connection import Connection
from drut.server.service import Loaded, Service
from drut.server.texts import Texts

BACKLOG = 1024  # of connections that nobody has taken yet
IDLE_S = 75  # of a connection between requests
GRACE_S = 10  # for replies under way at the end
Tell = Callable[[str], None]  # a line for the operator


def listen(config: ServerConfig) -> socket.socket:
    """The listening socket. RequestError where the address cannot be had."""
    family = socket.AF_INET6 if is_address(config.host) and ":" in config.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((config.host, config.port))
        sock.listen(BACKLOG)  # clients that come before the server runs wait
    except OSError as error:
        sock.close()
        raise RequestError(f"cannot listen on {config.host}:{config.port}: {error.strerror or error}") from None
    return sock


def served_names(config: ServerConfig, model: str) -> list[str]:
    """What clients may call the model; of a path only its end is told."""
    given = [name.strip() for name in (config.served_model_name or "").split(",") if name.strip()]
    own = model.removeprefix("hf:") if model.startswith("hf:") else Path(model).name.removesuffix(".gguf") or model
    return given if any(name != "*" for name in given) else [own, *given]


class Server:
    """Serves the model at `path` under one address. `tell` gets lines for the operator."""

    def __init__(self, model: str, path: Path, config: ServerConfig, engine: EngineConfig, tell: Tell) -> None:
        """Takes the port. RequestError where it, or who may call, is no good."""
        self.service = Service(config, served_names(config, model))
        check_exposure(config, self.service.keys)
        self._path, self._config, self._engine, self._tell = path, self.service.config, engine, tell
        self._socket = listen(config)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._http = uvicorn.Server(uvicorn.Config(
            App(self.service), http=partial(Connection, settings=config), ws="none", lifespan="off",  # type: ignore[arg-type]
            log_config=None, access_log=False, server_header=False, timeout_keep_alive=IDLE_S, backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE_S))

    async def run(self) -> None:
        """Until a signal or `stop`. DrutError where the model cannot be loaded."""
        self._tell(f"listening on {self.url}, loading {self.service.name}")
        engine = asyncio.create_task(self._run_engine())
        try:
            await self._http.serve(sockets=[self._socket])
        finally:
            engine.cancel()
            (end,) = await asyncio.gather(engine, return_exceptions=True)
            self.service.close()
        if isinstance(end, DrutError):
            raise end

    def stop(self) -> None:
        """Ends `run`: replies under way have some seconds left. From any thread."""
        self._http.should_exit = True

    async def _run_engine(self) -> None:
        """Loads, says so, and keeps the engine until it is cancelled. A failure ends the server."""
        given = {name: value for name, value in asdict(self._engine).items() if value is not None}
        service = self.service
        try:
            async with AsyncEngine(self._path, process=self._config.engine == "process", **given) as engine:
                ready = engine.ready
                texts = await asyncio.to_thread(Texts.open, self._path, ready.room, self._config.max_text_chars)
                admission = Admission(engine, AdmissionLimits(max_queue=self._config.max_queue))
                service.loaded = Loaded(texts, admission, ready.numerics_id, int(time.time()))
                service.health.waits_for = None
                self._tell(f"ready: {ready.description}, numerics {ready.numerics_id}, {ready.room} tokens of context, "
                           f"loaded in {ready.load_s:.2f} s")
                await asyncio.Event().wait()
        finally:
            service.loaded = None
            self.stop()

"""A server from start to end: it listens first, so that `/ready` can report the load, then loads the model."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from drut.config import EngineConfig
from drut.engine.service.async_engine import AsyncEngine
from drut.errors import RequestError
from drut.machine import usable_cpus
from drut.parse.narrowing import Bounds
from drut.server.admission import AdmissionControl, AdmissionLimits, Observer, ObserverGroup
from drut.server.config import ServerConfig
from drut.server.grammars import Compilers
from drut.server.http.app import App
from drut.server.http.auth import check_exposure, is_address
from drut.server.http.connection import HttpConnection
from drut.server.http.failures import FailureLog
from drut.server.http.gate import ConnectionGate, with_connections
from drut.server.http.origins import SharedOrigins, allowed
from drut.server.life import Lifecycle, Startup
from drut.server.life.greeting import greeting
from drut.server.life.roof import compare_with_roof
from drut.server.life.run_file import announced
from drut.server.openai.prompts import PromptProcessor
from drut.server.service import Loaded, Service
from drut.server.spans import open_spans

BACKLOG = 1024  # connections that wait to be accepted
PROBES = 4  # to a silent client, before its connection is dropped
GRACE_S = 5  # for replies to reach the clients after all requests have ended
Print = Callable[[str], None]  # prints a line for the operator


def listen(config: ServerConfig) -> socket.socket:
    """Returns the listening socket. RequestError if the address is not available."""
    family = socket.AF_INET6 if is_address(config.host) and ":" in config.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        enable_tcp_keepalive(sock, config)
        sock.bind((config.host, config.port))
        sock.listen(BACKLOG)  # clients that connect before the server runs wait
    except OSError as error:
        sock.close()
        raise RequestError(f"cannot listen on {config.host}:{config.port}: {error.strerror or error}") from None
    return sock


def enable_tcp_keepalive(sock: socket.socket, config: ServerConfig) -> None:
    """Makes the system drop connections accepted from `sock` whose client no longer answers.

    A machine or network that fails closes no connection, so nothing else detects it.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", config.tcp_keepalive_s), ("TCP_KEEPCNT", PROBES),
                        ("TCP_KEEPINTVL", max(1, config.tcp_keepalive_s // PROBES)),
                        ("TCP_USER_TIMEOUT", int(config.write_timeout_s * 1000))):  # for unacknowledged data, ms
        if hasattr(socket, name):  # Linux
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def served_names(config: ServerConfig, model: str) -> list[str]:
    """Returns the names that clients may use for the model. The default of a local model is the end of its path."""
    given = [name.strip() for name in (config.served_model_name or "").split(",") if name.strip()]
    for name in given:
        if not name.isprintable():
            raise RequestError(f"served_model_name must have printable characters only, not {name!r}")
    own = model.removeprefix("hf:") if model.startswith("hf:") else Path(model).name.removesuffix(".gguf") or model
    return given if any(name != "*" for name in given) else [own, *given]


class HttpServer(uvicorn.Server):
    """uvicorn's server, without its signal handlers: `Lifecycle` has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Serves the model at `path` under one address. `print_line` prints for the operator, `log` observes requests."""

    def __init__(self, model: str, path: Path, config: ServerConfig, engine: EngineConfig, print_line: Print,
                 log: Observer | None = None, *, failures: FailureLog | None = None,
                 on_loaded: Callable[[], None] | None = None) -> None:
        """Binds the port. RequestError if that fails or the keys are invalid. `on_loaded` is called once requests can
        be computed."""
        self._startup = Startup()
        config = with_connections(config)
        self.service = Service(config, served_names(config, model), failures)
        check_exposure(config, self.service.keys)
        origins = allowed(config, keyless=not self.service.keys)
        self._path, self._config, self._engine, self._print_line = path, self.service.config, engine, print_line
        self._on_loaded = on_loaded
        metrics = self.service.metrics
        self._spans = open_spans(config.otlp_endpoint, self.service.name) if config.otlp_endpoint else None
        others = [o for o in (log, self._spans) if o is not None]
        self._observer: Observer = ObserverGroup(metrics, *others) if others else metrics
        self.gate = ConnectionGate(config.max_connections or 0, config.max_connections_per_address)
        metrics.gate = self.gate
        app: ASGIApp = App(self.service)
        if origins:
            app = SharedOrigins(app, origins, self.service.failures)
        self._socket = listen(config)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._http = HttpServer(uvicorn.Config(
            app, http=partial(HttpConnection, settings=config, gate=self.gate,  # type: ignore[arg-type]
                              failures=self.service.failures),
            ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            log_level="error",  # its warnings are of clients' faults, which FailureLog writes and bounds
            timeout_keep_alive=int(config.idle_timeout_s), backlog=BACKLOG,
            timeout_graceful_shutdown=GRACE_S))
        self._stop: Callable[[], object] | None = None

    async def run(self) -> int:
        """Serves until a signal, `stop` or the engine's end; returns the exit code. DrutError if the model cannot be
        loaded."""
        self._print_line(f"listening on {self.url}, loading {self.service.name}")
        http = asyncio.create_task(self._http.serve(sockets=[self._socket]))
        try:
            return await self._run_engine()
        finally:
            self._http.should_exit = True
            await http
            self.service.close()
            if self._spans is not None:
                await asyncio.to_thread(self._spans.close)

    def stop(self) -> None:
        """Does what a signal does: the first call drains, the second ends at once. Any thread may call it after `run`
        has begun."""
        if self._stop is not None:
            self._stop()

    async def _run_engine(self) -> int:
        service, config = self.service, self._config
        async with AsyncEngine(self._path, process=config.engine == "process", config=self._engine) as engine:
            ready = engine.ready
            self._startup.engine(ready)
            texts = await asyncio.to_thread(PromptProcessor.open, self._path, ready.room, config.max_text_chars,
                                            tool_parser=config.tool_parser, reasoning_parser=config.reasoning_parser,
                                            special_tokens=config.special_tokens_in_messages,
                                            sampling=config.sampling(ready.sampling),
                                            tool_bounds=Bounds(config.tool_string_chars, config.tool_array_items))
            limits = AdmissionLimits(max_queue=config.max_queue, max_queue_tokens=config.max_queue_tokens,
                                     max_wait_s=config.max_wait_s)
            admission = AdmissionControl(engine, limits, observer=self._observer)
            service.metrics.watch(admission, engine, self._engine)
            life = Lifecycle(engine, admission, service.health, drain_s=config.drain_s, stuck_s=config.stuck_s,
                             on_stats=service.metrics.update_stats)
            self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, life.stop)
            compilers = Compilers(engine, seconds=self._engine.grammar_timeout_s,
                                  patience_s=config.max_wait_s, room=int(self._engine.grammar_cache_mb * 1e6))
            service.loaded = Loaded(texts, admission, compilers, ready.numerics_id, int(time.time()))
            self._startup.lap("tokenizer")
            if self._on_loaded is not None:
                self._on_loaded()
            self._print_line(str(self._startup))
            for line in greeting(self.url, service.name, ready, keyed=bool(service.keys),
                                 kv_dtype=self._engine.kv_dtype, chats=texts.templates is not None,
                                 texts=texts.tokenizer is not None):
                self._print_line(line)
            threads = self._engine.threads or len(usable_cpus())
            roof = asyncio.create_task(compare_with_roof(engine, service.health, threads))
            try:
                with announced(self.service.name, self.url):
                    return await life.run()
            finally:
                roof.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await roof

"""A real server on a real port, in a thread of this process; and a client that hides nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from drut.config import EngineConfig
from drut.server.config import ServerConfig
from drut.server.life.serve import Server

PATIENCE_S = 120  # on a starved machine; what holds at all holds soon on another


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw.decode("utf-8", "strict"))

    @property
    def error(self) -> dict[str, Any]:
        """The error, after checking that it has the shape that all have."""
        assert self.status >= 400, self.raw[:300]
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str)
        for hidden in ("Traceback", "/root", "/tmp", "site-packages", "object at 0x"):
            assert hidden not in error["message"]
        return error

    @property
    def events(self) -> list[Any]:
        """Data of the server-sent events; `[DONE]` is a string."""
        blocks = self.raw.decode("utf-8", "strict").split("\n\n")
        assert blocks.pop() == ""
        data = [b.removeprefix("data: ") for b in blocks if not b.startswith(":")]
        return [d if d == "[DONE]" else json.loads(d) for d in data]


@dataclass
class Client:
    url: str
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def request(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None,
                timeout: float = PATIENCE_S) -> Reply:
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        sent = {"content-type": "application/json"} if body is not None else {}
        if self.key is not None:
            sent["authorization"] = f"Bearer {self.key}"
        try:
            connection.request(method, path, body, {**sent, **self.headers, **(headers or {})})
            got = connection.getresponse()
            return Reply(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
        finally:
            connection.close()

    def get(self, path: str, **kwargs: Any) -> Reply:
        return self.request("GET", path, **kwargs)

    def post(self, path: str, body: Any, **kwargs: Any) -> Reply:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, raw, **kwargs)

    def complete(self, prompt: Any = "hello", **fields: Any) -> Reply:
        return self.post("/v1/completions", {"prompt": prompt, "max_tokens": 5} | fields)

    def chat(self, content: Any = "hi", **fields: Any) -> Reply:
        messages = [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", {"messages": messages, "max_tokens": 5} | fields)

    def raw(self, data: bytes, timeout: float = 10) -> bytes:
        """Returns all that the server sends for these bytes, until it closes the connection or stops sending."""
        with socket.create_connection(self.address, timeout=timeout) as sock:
            got = b""
            try:
                sock.sendall(data)
                while part := sock.recv(65536):
                    got += part
            except OSError:
                pass
            return got

    def open_stream(self, path: str, body: Any, **kwargs: Any) -> socket.socket:
        """Sends a request and returns before its reply is read."""
        sock = socket.socket()
        if "rcvbuf" in kwargs:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kwargs["rcvbuf"])
        sock.settimeout(PATIENCE_S)
        sock.connect(self.address)
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        sock.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return sock


class Running(Client):
    """A server under way."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.url)
        self.server = server

    @property
    def open(self) -> int:
        """Requests that the engine has or will get."""
        assert self.server.service.loaded is not None
        admission = self.server.service.loaded.admission
        return admission.waiting + admission.running

    def until_idle(self) -> None:
        """Returns when no request is open."""
        until(lambda: self.open == 0)

    def assert_well(self) -> None:
        """A plain request still gets its answer."""
        assert self.complete("well", max_tokens=2).status == 200


@contextmanager
def serving(path: Path, *, engine: dict[str, Any] | None = None, transport: str = "thread",
            **settings: Any) -> Iterator[Running]:
    """A server with the engine in a thread, or a process; `settings` are those of ServerConfig."""
    lines: list[str] = []
    common = {"port": 0, "engine": transport, "served_model_name": "tiny", "stuck_s": 3600}
    config = ServerConfig.resolve(common | settings, {})
    engine_config = EngineConfig.resolve({"threads": 1} | (engine or {}), {})
    with run_in_thread(Server(str(path), path, config, engine_config, lines.append), lines) as running:
        yield running


@contextmanager
def run_in_thread(server: Server, lines: list[str]) -> Iterator[Running]:
    """Runs `server` from its line "ready" to the end of the block."""
    thread = threading.Thread(target=lambda: asyncio.run(server.run()), daemon=True)
    thread.start()
    try:
        until(lambda: any(line.startswith("ready") for line in lines) or not thread.is_alive())
        yield Running(server)
    finally:
        server.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def within(param: str | None, field: str) -> bool:
    """Whether the path that an error gives is that of `field`, or of something in it."""
    return param == field or (param or "").startswith((f"{field}.", f"{field}["))


def until(condition: Any, seconds: float = PATIENCE_S) -> None:
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)

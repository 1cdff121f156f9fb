"""A plain reader of HTTP answers and event streams over a socket: it shares nothing with the load client."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """`pieces` are what single reads brought, each with the moment it came."""

    asked_s: float
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    reset: bool = False

    @property
    def raw(self) -> bytes:
        return b"".join(data for _, data in self.pieces)

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def head(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[0].lower()

    @property
    def body(self) -> bytes:
        rest = self.raw.partition(b"\r\n\r\n")[2]
        return dechunk(rest) if b"transfer-encoding: chunked" in self.head else rest

    @property
    def lines(self) -> list[str]:
        return [line for line in self.body.decode().replace("\r\n", "\n").split("\n") if line]

    @property
    def events(self) -> list[Any]:
        """The data of all events but [DONE]."""
        data = [line[6:] for line in self.lines if line.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]

    def when(self, needle: bytes) -> list[float]:
        """When each read came that brought `needle`, in seconds from asking, once for each."""
        return [at - self.asked_s for at, data in self.pieces for _ in range(data.count(needle))]


def dechunk(data: bytes) -> bytes:
    """The payload of HTTP's chunked coding, as far as it goes."""
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        whole += data[:int(size, 16)]
        data = data[int(size, 16) + 2:]
    return whole


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def request_bytes(path: str, body: dict[str, Any] | bytes | None, close: bool = True) -> bytes:
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    end = "Connection: close\r\n" if close else ""
    method = "GET" if body is None else "POST"
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{end}Content-Length: {len(data)}\r\n\r\n".encode() + data


def ask(url: str, path: str, body: dict[str, Any] | bytes | None = None) -> Answer:
    """Send one request and read until the server closes."""
    with connect(url) as sock:
        answer = Answer(time.monotonic())
        sock.sendall(request_bytes(path, body))
        try:
            while data := sock.recv(1 << 16):
                answer.pieces.append((time.monotonic(), data))
        except ConnectionResetError:
            answer.reset = True
        return answer


def complete(url: str, **body: Any) -> Answer:
    """A streamed completion, by default."""
    return ask(url, "/v1/completions", {"prompt": "a b c", "stream": True, **body})


def chat(url: str, **body: Any) -> Answer:
    messages = [{"role": "user", "content": "a b c"}]
    return ask(url, "/v1/chat/completions", {"messages": messages, "stream": True, **body})

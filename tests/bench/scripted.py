"""A server whose every answer is a function, in a thread of its own. What it does is up to the test, bytes and all."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable
from typing import Any

Handler = Callable[["Request"], Awaitable[None]]


class Request:
    """A request and the way to answer it."""

    def __init__(self, path: str, headers: dict[str, str], body: Any, writer: asyncio.StreamWriter) -> None:
        self.path, self.headers, self.body, self._writer = path, headers, body, writer
        self.connection = id(writer)

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int = 200, kind: str = "text/event-stream") -> None:
        await self.raw(f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, event: dict[str, Any]) -> None:
        await self.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    async def text(self, text: str, finish: str | None = None, **more: Any) -> None:
        await self.event({"choices": [{"delta": {"content": text}, "finish_reason": finish}], **more})

    async def usage(self, prompt: int, completion: int) -> None:
        await self.event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})

    async def done(self) -> None:
        await self.chunk(b"data: [DONE]\n\n")
        await self.raw(b"0\r\n\r\n")

    async def json(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        await self.raw(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                       % (status, len(data), data))

    def cut(self) -> None:
        """Ends the connection at once."""
        self._writer.transport.abort()

    def close(self) -> None:
        """Ends the connection when all is sent."""
        self._writer.close()


class ScriptedServer:
    """`with ScriptedServer(handler) as server`: listens on `server.url`, remembers `server.requests`."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self._handler, self._tls = handler, tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._listening = threading.Event()
        self._stop = asyncio.Event()
        self.requests: list[Request] = []
        self.url = ""

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1024, ssl=self._tls)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listening.set()
        await self._stop.wait()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
                body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"null")
                request = Request(first.split()[1], headers, body, writer)
                self.requests.append(request)
                await self._handler(request)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


def tokens(count: int, first_s: float = 0.0, gap_s: float = 0.0) -> Handler:
    """Answers with so many tokens, one an event, and their usage."""

    async def handler(request: Request) -> None:
        await asyncio.sleep(first_s)
        await request.head()
        for i in range(count):
            if i and gap_s:
                await asyncio.sleep(gap_s)
            await request.text(f"t{i} ", "length" if i + 1 == count else None)
        await request.usage(3, count)
        await request.done()

    return handler

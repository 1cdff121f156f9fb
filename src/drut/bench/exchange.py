"""An HTTP client for everything except the load: one request at a time, with limits of size and time."""

from __future__ import annotations

import contextlib
import http.client
import queue
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from drut.bench.address import Address, shown, split
from drut.bench.sse import Event, SseSplitter
from drut.errors import DrutError, RequestError

MAX_REPLY_BYTES = 64 << 20
CONNECT_S = 10.0
GLANCE_S = 0.1  # between two checks while waiting for an event
_READ = 1 << 16


class RefusedError(RequestError):
    """Raised for a reply whose status is not 200; holds the reply."""

    def __init__(self, message: str, status: int, data: bytes) -> None:
        super().__init__(message)
        self.status, self.data = status, data


class ToolExchange:
    """One connection to a server, used by one thread at a time. Paths are those of `Address`; `name` begins every error
    text."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, timeout_s: float = 30.0,
                 tls: ssl.SSLContext | None = None, name: str = "", endpoint: str | None = None,
                 most_bytes: int | None = None) -> None:
        self._address = Address(url, endpoint)
        parts = split(url)
        assert parts.hostname is not None
        self.name = name or shown(url)
        self._page = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timeout_s, self._headers, self._most = timeout_s, dict(headers or {}), most_bytes or MAX_REPLY_BYTES
        connect_s = min(timeout_s, CONNECT_S)
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=connect_s)
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=connect_s, context=tls)

    def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Sends a POST and returns the reply's body. Raises RequestError if there is no reply, RefusedError if its
        status is not 200."""
        status, data = self.send(path, body)
        if status != 200:
            raise self._refused(path, status, data)
        return data

    def send(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """Sends a POST if there is a body, otherwise a GET. Returns status and body. Raises RequestError if no complete
        reply arrives in time."""
        return self._send(self._address.path(path), body)

    def page(self) -> tuple[int, bytes]:
        """Sends a GET of the URL itself. Returns status and body."""
        return self._send(self._page, None)

    @contextlib.contextmanager
    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[Iterator[Event | None]]:
        """Yields the events of a reply as they arrive, and None after every `GLANCE_S` without an event. The end of the
        block ends the request; the time limit applies to each wait. Raises RequestError and RefusedError as `post`
        does, also between events."""
        try:
            sock = self._sent(self._address.path(path), body)
            response = self._connection.getresponse()
            if response.status != 200:
                raise self._refused(path, response.status, response.read(self._most))
        except (http.client.HTTPException, OSError) as error:
            raise self._broken(error) from None
        reader = _AnswerReader(sock, response)
        try:
            yield self._events(reader)
        finally:
            reader.close()
            self.close()

    def close(self) -> None:
        self._connection.close()

    def _send(self, target: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        """Sends a request. Opens the connection once more if the server closed it between two requests."""
        again = self._connection.sock is not None
        while True:
            try:
                return self._once(target, body)
            except (http.client.HTTPException, OSError) as error:
                if not (again and isinstance(error, (BrokenPipeError, ConnectionResetError))):
                    raise self._broken(error) from None
                again = False
                self._connection.close()

    def _once(self, target: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        # The socket's timeout applies to each read: a server that sends one byte now and then would never time out.
        late, used = threading.Event(), list[socket.socket]()
        guard = threading.Timer(self._timeout_s, _hang_up, [late, used])
        guard.daemon = True
        guard.start()
        try:
            used.append(self._sent(target, body))
            response = self._connection.getresponse()
            data = response.read(self._most + 1)
        except (http.client.HTTPException, OSError) as error:
            if not late.is_set() and not isinstance(error, TimeoutError):
                raise
            late.set()
        finally:
            guard.cancel()
        if late.is_set():
            raise TimeoutError(f"no reply within {self._timeout_s:g} s")
        if len(data) > self._most:
            raise http.client.HTTPException(f"the reply is longer than {self._most} bytes")
        if response.length:
            raise http.client.HTTPException("the reply was cut short")
        return response.status, data

    def _sent(self, target: str, body: Mapping[str, Any] | None) -> socket.socket:
        """Sends a request and returns the socket, which the connection forgets if no other request follows."""
        if self._connection.sock is None:
            self._connection.connect()
        sock: socket.socket = self._connection.sock
        sock.settimeout(self._timeout_s)
        if body is None:
            self._connection.request("GET", target, headers=self._headers)
        else:
            self._connection.request("POST", target, msgspec.json.encode(body),
                                     {"Content-Type": "application/json", **self._headers})
        return sock

    def _events(self, reader: _AnswerReader) -> Iterator[Event | None]:
        while True:
            try:
                found = reader.queue.get(timeout=GLANCE_S)
            except queue.Empty:
                yield None
                continue
            if found is None:
                return
            if isinstance(found, Exception):
                raise RequestError(f"{self.name}: the stream broke off: {str(found) or type(found).__name__}")
            yield found

    def _refused(self, path: str, status: int, data: bytes) -> RefusedError:
        return RefusedError(f"{self.name}: {path} answered {status}: {data[:200].decode(errors='replace')}", status,
                            data)

    def _broken(self, error: Exception) -> RequestError:
        self._connection.close()
        return RequestError(f"{self.name}: {str(error) or type(error).__name__}")


class _AnswerReader:
    """Reads the events of a reply in a thread, into a queue that ends with None or with an exception."""

    def __init__(self, sock: socket.socket, response: http.client.HTTPResponse) -> None:
        self.queue: queue.Queue[Event | Exception | None] = queue.Queue()
        self._socket, self._response = sock, response
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops reading."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(1.0)
        self._response.close()

    def _read(self) -> None:
        splitter = SseSplitter()
        try:
            while data := self._response.read1(_READ):
                for event in splitter.feed(data):
                    self.queue.put(event)
            self.queue.put(None)
        except (OSError, ValueError, http.client.HTTPException, AttributeError, DrutError) as error:
            self.queue.put(error)


def _hang_up(late: threading.Event, used: list[socket.socket]) -> None:
    late.set()
    for sock in used:
        with contextlib.suppress(OSError):  # it may be closed already
            sock.shutdown(socket.SHUT_RDWR)

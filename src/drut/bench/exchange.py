"""Small questions to a server beside the load: one at a time, bounded in size and in time."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from drut.bench.address import Address, shown, split
from drut.errors import RequestError

MAX_REPLY_BYTES = 64 << 20


class Exchange:
    """One connection to a server, for one thread at a time. Paths are as `Address` takes them; `name` begins every
    error."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, timeout_s: float = 30.0,
                 tls: ssl.SSLContext | None = None, name: str = "", endpoint: str | None = None) -> None:
        self._address = Address(url, endpoint)
        parts = split(url)
        assert parts.hostname is not None
        self.name = name or shown(url)
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=tls)

    def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The reply's body. RequestError where there is none, or its status is not 200."""
        status, data = self.send(path, body)
        if status != 200:
            raise RequestError(f"{self.name}: {path} answered {status}: {data[:200].decode(errors='replace')}")
        return data

    def send(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Status and body; a connection that the server closed between two requests is opened once more. RequestError
        where there is no whole answer in time."""
        try:
            return self._once(path, body)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self._connection.close()
        except (http.client.HTTPException, OSError) as error:
            raise self._broken(error) from None
        try:
            return self._once(path, body)
        except (http.client.HTTPException, OSError) as error:
            raise self._broken(error) from None

    def close(self) -> None:
        self._connection.close()

    def _once(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        # The socket's timeout is for each read: a server that sends a byte now and then would never end.
        late, used = threading.Event(), list[socket.socket]()
        guard = threading.Timer(self._timeout_s, self._hang_up, [late, used])
        guard.daemon = True
        guard.start()
        try:
            self._connection.request("POST", self._address.path(path), msgspec.json.encode(body), self._headers)
            used.append(self._connection.sock)  # which belongs to the answer alone, where no other is to follow
            response = self._connection.getresponse()
            data = response.read(MAX_REPLY_BYTES + 1)
        except (http.client.HTTPException, OSError):
            if not late.is_set():
                raise
        finally:
            guard.cancel()
        if late.is_set():
            raise TimeoutError(f"no answer in {self._timeout_s:g} s")
        if len(data) > MAX_REPLY_BYTES:
            raise http.client.HTTPException(f"{path} answered more than {MAX_REPLY_BYTES} bytes")
        return response.status, data

    def _hang_up(self, late: threading.Event, used: list[socket.socket]) -> None:
        late.set()
        with contextlib.suppress(OSError, AttributeError):  # the socket may be closed, or not yet there
            (used[0] if used else self._connection.sock).shutdown(socket.SHUT_RDWR)

    def _broken(self, error: Exception) -> RequestError:
        self._connection.close()
        return RequestError(f"{self.name}: {str(error) or type(error).__name__}")

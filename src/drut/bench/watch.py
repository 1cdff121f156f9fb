"""What is watched beside the requests themselves: the server's own metrics, and what the run takes of this machine."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import TracebackType

import msgspec

from drut.bench.resources import Resources, ResourceWatch
from drut.bench.server_side import ServerSide, ServerWatch


class Watched(msgspec.Struct, frozen=True):
    """From before the warm-up until the last answer. `server` is None where its metrics were not asked for."""

    server: ServerSide | None
    resources: Resources


class Watch:
    """Watches while it is entered; `result` is there afterwards."""

    def __init__(self, metrics_url: str | None, headers: Mapping[str, str], server_pid: int | None,
                 tls: ssl.SSLContext | None = None) -> None:
        """Raises RequestError where the URL is none, or there is no process of that id."""
        self._server = ServerWatch(metrics_url, headers=headers, tls=tls) if metrics_url is not None else None
        self._resources = ResourceWatch(server_pid)
        self.result: Watched | None = None

    def __enter__(self) -> Watch:
        if self._server is not None:
            self._server.start()
        self._resources.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
                 ) -> None:
        server = self._server.stop() if self._server is not None else None
        self.result = Watched(server, self._resources.stop())

"""Watches the server's own metrics and the resources of this machine during a run."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import TracebackType

import msgspec

from drut.bench.resources import Resources, ResourceWatch
from drut.bench.server_side import ServerSide, ServerWatch


class Watched(msgspec.Struct, frozen=True):
    """The measurements from before the warm-up until the last response. `server` is None if its metrics were not
    requested."""

    server: ServerSide | None
    resources: Resources


class Watch:
    """Watches inside its `with` block; `result` is available afterwards."""

    def __init__(self, metrics_url: str | None, headers: Mapping[str, str], server_pid: int | None,
                 tls: ssl.SSLContext | None = None) -> None:
        """Raises RequestError if the URL is invalid or no process has that id."""
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

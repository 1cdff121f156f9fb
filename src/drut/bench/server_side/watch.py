"""Scrapes a server before, during and after a run, in a thread of its own."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Mapping

from drut.bench.address import Address, shown, split
from drut.bench.server_side.names import EngineMetrics, detect
from drut.bench.server_side.page import TIMEOUT_S, Page, fetch, names_on, parse
from drut.bench.server_side.summary import ServerSide, summarize, wanted_names
from drut.errors import RequestError

PATHS = ("/metrics", "/prometheus/metrics")  # the second is TensorRT-LLM's, whose first one is JSON


def metrics_urls(url: str) -> list[str]:
    """Returns the possible URLs of a server's metrics: `url` itself if it names them, otherwise the usual paths on the
    host of its API."""
    if split(url).path.endswith("/metrics"):
        return [url]
    return [Address(url).whole(path) for path in PATHS]


class ServerWatch:
    """Watches a server from `start` to `stop`; a server without metrics is not an error, and the result states it.
    Raises RequestError if the URL is invalid."""

    def __init__(self, url: str, every_s: float = 1.0, timeout_s: float = TIMEOUT_S,
                 headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._urls, self._tls = metrics_urls(url), tls
        self._url, self._every_s, self._timeout_s, self._headers = url, every_s, timeout_s, headers or {}
        self._engine: EngineMetrics | None = None
        self._wanted: set[str] = set()
        self._problems: list[str] = []
        self._during: list[Page] = []
        self._failed = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="server metrics", daemon=True)

    def start(self) -> None:
        """Scrapes before the run, without a time limit of its own."""
        for url in self._urls:
            try:
                text = self._fetch(url)
                self._engine = detect(names_on(text))
                if self._engine is None:
                    raise RequestError(f"{shown(url)}: no engine's metrics")
                self._url, self._wanted = url, wanted_names(self._engine)
                self._before, self._began = parse(text, self._wanted), time.monotonic()
            except RequestError as error:
                self._engine = None
                self._problems.append(str(error))
            else:
                self._thread.start()
                return

    def stop(self) -> ServerSide:
        """Scrapes after the run, and returns the summary."""
        self._stopping.set()
        if self._engine is None:
            return ServerSide(problems=self._problems)
        self._thread.join()
        url = shown(self._url)
        try:
            after = self._scrape()
        except RequestError as error:
            return ServerSide(self._engine.name, url, failed_scrapes=self._failed + 1, problems=[str(error)])
        seconds = time.monotonic() - self._began
        return summarize(self._engine, url, self._before, self._during, after, seconds, self._failed)

    def _scrape(self) -> Page:
        return parse(self._fetch(self._url), self._wanted)

    def _fetch(self, url: str) -> str:
        return fetch(url, self._timeout_s, headers=self._headers, tls=self._tls)

    def _sample(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._during.append(self._scrape())
            except RequestError:
                self._failed += 1

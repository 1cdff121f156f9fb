"""One scrape: fetching a page of metrics within bounds, and reading the numbers on it."""

from __future__ import annotations

import http.client
import math
import re
import socket
import ssl
import threading
from collections.abc import Container, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult

from prometheus_client.parser import text_string_to_metric_families

from drut.bench.address import shown, split
from drut.errors import RequestError

MOST_BYTES = 1 << 24
TIMEOUT_S = 5.0
MOST_VALUE = 1e18  # of a sample; past it, or no number, it is none
_NAME = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)", re.M)
_PARTS = re.compile(r"_(?:bucket|sum|count)$")


@dataclass(frozen=True)
class Histogram:
    """Cumulative counts by upper bound, the last of them infinite."""

    counts: dict[float, float]
    total_s: float


class Page:
    """The samples of some metrics, added up over their labels."""

    def __init__(self, values: dict[str, float], buckets: dict[str, dict[float, float]]) -> None:
        self._values, self._buckets = values, buckets

    def value(self, names: str) -> float | None:
        """The sum of names joined by `+`; None where one is missing."""
        found = [self._values.get(name) for name in names.split("+")]
        return None if None in found else sum(value for value in found if value is not None)

    def histogram(self, name: str) -> Histogram | None:
        """None where it is missing."""
        if name not in self._buckets:
            return None
        return Histogram(dict(sorted(self._buckets[name].items())), self._values.get(f"{name}_sum", 0.0))


def names_on(text: str) -> set[str]:
    """The names of all samples."""
    return set(_NAME.findall(text))


def parse(text: str, wanted: Container[str]) -> Page:
    """The wanted metrics; no other line is looked at, since most of a page is of no use and parsing takes its time.

    Raises RequestError where one of their lines is no sample.
    """
    lines = []
    for line in text.splitlines():
        found = _NAME.match(line)
        if found and (found[1] in wanted or _PARTS.sub("", found[1]) in wanted):
            lines.append(line)
    values: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                if not abs(sample.value) < MOST_VALUE:
                    continue
                if sample.name.endswith("_bucket"):
                    bucket = buckets.setdefault(sample.name.removesuffix("_bucket"), {})
                    bound = float(sample.labels["le"])
                    if not (abs(bound) < MOST_VALUE or bound == math.inf):
                        continue
                    bucket[bound] = bucket.get(bound, 0.0) + sample.value
                else:
                    values[sample.name] = values.get(sample.name, 0.0) + sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise RequestError(f"metrics: not Prometheus text: {error}") from None
    return Page(values, buckets)


def fetch(url: str, timeout_s: float = TIMEOUT_S, most_bytes: int = MOST_BYTES,
          headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> str:
    """The text at a URL of http or https. Raises RequestError naming it, after `timeout_s` in all at the latest."""
    parts = split(url)
    assert parts.hostname is not None
    timed_out = threading.Event()
    try:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=tls)
        connection.connect()
        timer = threading.Timer(timeout_s, _give_up, (connection.sock, timed_out))  # the other is for each read alone
        timer.daemon = True
        timer.start()
        try:
            text = _get(connection, _path(parts), most_bytes, headers or {})
            if timed_out.is_set():  # what was read until then looked complete
                raise TimeoutError
            return text
        finally:
            timer.cancel()
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = f"no answer within {timeout_s:g} s" if timed_out.is_set() else str(error) or type(error).__name__
        raise RequestError(f"{shown(url)}: {reason}") from None


def _path(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _give_up(sock: socket.socket, timed_out: threading.Event) -> None:
    timed_out.set()
    sock.shutdown(socket.SHUT_RDWR)


def _get(connection: http.client.HTTPConnection, path: str, most_bytes: int, headers: Mapping[str, str]) -> str:
    connection.request("GET", path, headers={"Accept": "text/plain", **headers})
    answer = connection.getresponse()
    if answer.status != 200:
        raise ValueError(f"status {answer.status}")
    data = answer.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"more than {most_bytes} bytes")
    if answer.length:
        raise ValueError("the answer was cut short")
    return data.decode(errors="replace")

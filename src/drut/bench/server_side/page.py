"""One scrape: fetches a page of metrics within limits, and parses its numbers."""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Container, Mapping
from contextlib import closing
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from drut.bench.exchange import ToolExchange
from drut.errors import RequestError

MAX_BYTES = 1 << 24
TIMEOUT_S = 5.0
MAX_VALUE = 1e18  # of a sample; a larger value or an invalid number is ignored
_NAME = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)", re.M)
_PARTS = re.compile(r"_(?:bucket|sum|count)$")


@dataclass(frozen=True)
class ScrapedHistogram:
    """Cumulative counts by upper bound, the last bound infinite."""

    counts: dict[float, float]
    total_s: float


class Page:
    """The samples of some metrics, summed over their labels."""

    def __init__(self, values: dict[str, float], buckets: dict[str, dict[float, float]]) -> None:
        self._values, self._buckets = values, buckets

    def value(self, names: str) -> float | None:
        """Returns the sum of names joined by `+`; None if one is missing."""
        found = [self._values.get(name) for name in names.split("+")]
        return None if None in found else sum(value for value in found if value is not None)

    def histogram(self, name: str) -> ScrapedHistogram | None:
        """Returns a histogram, None if it is missing."""
        if name not in self._buckets:
            return None
        return ScrapedHistogram(dict(sorted(self._buckets[name].items())), self._values.get(f"{name}_sum", 0.0))


def names_on(text: str) -> set[str]:
    """Returns the names of all samples."""
    return set(_NAME.findall(text))


def parse(text: str, wanted: Container[str]) -> Page:
    """Parses the wanted metrics; ignores all other lines, because most of a page is not needed and parsing is slow.

    Raises RequestError if one of the parsed lines is not a sample.
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
                if not abs(sample.value) < MAX_VALUE:
                    continue
                if sample.name.endswith("_bucket"):
                    bucket = buckets.setdefault(sample.name.removesuffix("_bucket"), {})
                    bound = float(sample.labels["le"])
                    if not (abs(bound) < MAX_VALUE or bound == math.inf):
                        continue
                    bucket[bound] = bucket.get(bound, 0.0) + sample.value
                else:
                    values[sample.name] = values.get(sample.name, 0.0) + sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise RequestError(f"metrics: not Prometheus text: {error}") from None
    return Page(values, buckets)


def fetch(url: str, timeout_s: float = TIMEOUT_S, most_bytes: int = MAX_BYTES,
          headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> str:
    """Returns the text at a URL of http or https. Raises RequestError with the URL, at the latest after `timeout_s`."""
    accept = {"Accept": "text/plain", **(headers or {})}
    with closing(ToolExchange(url, accept, timeout_s, tls, most_bytes=most_bytes)) as exchange:
        status, data = exchange.page()
    if status != 200:
        raise RequestError(f"{exchange.name}: status {status}")
    return data.decode(errors="replace")

"""Checks whether a server serves: by a path that answers 200, or by a completion."""

from __future__ import annotations

from contextlib import closing

from drut.bench.engines.engine import Launch
from drut.bench.exchange import ToolExchange
from drut.errors import RequestError

PROBE_S = 5.0


def serves(launch: Launch, timeout_s: float) -> bool:
    """Returns whether the server answers as `launch.ready` requires. A first completion may wait for the model to load,
    so it may take all of `timeout_s`."""
    path, body = launch.ready, None
    if launch.ready == "completion":
        path, body = "/v1/completions", {"model": launch.model, "prompt": "a", "max_tokens": 1, "temperature": 0}
    else:
        timeout_s = min(timeout_s, PROBE_S)
    with closing(ToolExchange(launch.url, timeout_s=max(timeout_s, 0.1), most_bytes=1 << 20)) as exchange:
        try:
            return exchange.send(path, body)[0] == 200
        except RequestError:
            return False

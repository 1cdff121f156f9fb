"""Whether a server serves: by a path that answers 200, or by a completion."""

from __future__ import annotations

import http.client
import json
import urllib.request

from drut.bench.address import Address
from drut.bench.engines.engine import Launch

PROBE_S = 5.0

# Engines are here; a proxy that the environment names is not meant for them.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def serves(launch: Launch, timeout_s: float) -> bool:
    """Whether it answers as `launch.ready` says. A first completion may have to wait for the model to be loaded, so it
    has all of `timeout_s`."""
    address = Address(launch.url)
    if launch.ready == "completion":
        body = {"model": launch.model, "prompt": "a", "max_tokens": 1, "temperature": 0}
        request = urllib.request.Request(address.whole("/v1/completions"), json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
    else:
        request, timeout_s = urllib.request.Request(address.whole(launch.ready)), min(timeout_s, PROBE_S)
    try:
        with _OPENER.open(request, timeout=max(timeout_s, 0.1)) as answer:
            answer.read(1 << 20)
            return bool(answer.status == 200)
    except (OSError, ValueError, http.client.HTTPException):  # what answers may be no HTTP server
        return False

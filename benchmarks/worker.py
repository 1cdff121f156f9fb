"""A process that a driver asks by JSON lines on standard input, and that answers on standard output.

A question is {"do": NAME, ...}: the action, and its arguments. A worker that is not asked anything blocks on standard
input, so that it takes no time from others. `benchmarks.peers.process.EngineProcess` is the driver's end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Answer = dict[str, Any]


def serve(actions: Mapping[str, Callable[..., Answer]]) -> None:
    """Answer requests until stdin closes: `do` names the action, the other fields are its arguments."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints must not break the protocol
    for line in sys.stdin:
        request = json.loads(line)
        reply = actions[request.pop("do")](**request)
        print(json.dumps(reply), file=replies, flush=True)

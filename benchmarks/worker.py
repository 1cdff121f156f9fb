"""A worker process: reads requests as JSON lines from standard input, and answers on standard output.

A request is {"do": NAME, ...}: the action, and its arguments. A worker without a request blocks on standard input, so
that it takes no CPU time from others. `benchmarks.peers.process.EngineProcess` is the driver's side.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Answer = dict[str, Any]


def serve(actions: Mapping[str, Callable[..., Answer]]) -> None:
    """Answers requests until stdin closes: `do` names the action, the other fields are its arguments."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output printed by a library must not break the protocol
    for line in sys.stdin:
        request = json.loads(line)
        reply = actions[request.pop("do")](**request)
        print(json.dumps(reply), file=replies, flush=True)

"""The CPU time of a token between the engine's message and the reader: admission, its record, metrics and log.

    python -m benchmarks.serving.admission [--rounds N] [--json]

Without a model: tickets receive messages as from an engine, one token each, for 16 requests at a time, in this
process's CPU time. `bare` is the loop that makes the messages, without tickets.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import time
from typing import Any

from benchmarks.report import Spread, table

from drut.engine.request.output import Chunk, Completion
from drut.engine.request.params import FilledParams
from drut.engine.service.messages import EngineReady, Output
from drut.server.admission import AdmissionControl, ObserverGroup, QueuedRequest
from drut.server.life import RequestLog
from drut.server.metrics import Metrics

REQUESTS, TOKENS = 16, 1000


class Handed:
    """An engine whose messages come from this script."""

    ready, dead = EngineReady(load_s=0.0, numerics_id="", description="", room=1 << 20, max_seqs=REQUESTS,
                              step_tokens=512,
                              parts={}), None

    def __init__(self) -> None:
        self.sinks: list[Any] = []

    def open(self, prompt: Any, params: Any, sink: Any, **_: Any) -> str:
        self.sinks.append(sink)
        return str(len(self.sinks))

    def abort(self, handle: str) -> None:
        """Ignored: requests end by themselves."""

    def on_death(self, watcher: Any) -> None:
        """Ignored: the engine never dies."""


async def play(parts: str) -> float:
    """Returns microseconds of CPU time per token."""
    engine, metrics, log = Handed(), Metrics("m"), RequestLog(io.BytesIO())
    observer = ObserverGroup(metrics, log) if parts == "with metrics and log" else None
    admission = AdmissionControl(engine, observer=observer)
    readers = []
    for _ in range(REQUESTS):
        if parts == "bare":
            engine.sinks.append(lambda message: None)
        else:
            ticket = admission.submit(QueuedRequest([0] * 16, FilledParams(max_tokens=TOKENS)))
            readers.append(asyncio.ensure_future(drain(ticket)))
    await asyncio.sleep(0)
    started = time.process_time()
    for i in range(TOKENS):
        for sink in engine.sinks:
            last = i == TOKENS - 1
            end = Completion(text="", token_ids=[], finish_reason="length", prompt_tokens=16, cached_tokens=0,
                             completion_tokens=TOKENS, seed=0) if last else None
            sink(Output("", Chunk("x", [1], end), last))
        await asyncio.sleep(0)
    await asyncio.gather(*readers)
    seconds = time.process_time() - started
    log.close()
    return seconds / (REQUESTS * TOKENS) * 1e6


async def drain(ticket: Any) -> None:
    async for _ in ticket:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (default: 5)")
    parser.add_argument("--json", action="store_true", help="print every round as JSON")
    args = parser.parse_args()
    names = ("bare", "admission", "with metrics and log")
    rounds = [{name: asyncio.run(play(name)) for name in names} for _ in range(args.rounds + 1)][1:]
    if args.json:
        print(json.dumps(rounds))
    else:
        rows = [[name, Spread.of([r[name] for r in rounds]).text(1)] for name in names]
        print(table(["", "us of CPU per token"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One side of a paired comparison, as a process that answers JSON lines (`benchmarks.worker`).

{"do": "load", "work": KIND@N, "model": NAME, "settings": {...}, "slow": S}  -> {"source": the drut that runs}
{"do": "turn", "number": I}   -> {"seconds": s, "digest": of the output}
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from benchmarks.ab.works import Work, start
from benchmarks.worker import Answer, serve

import drut


class Side:
    def __init__(self) -> None:
        self._work: Work | None = None
        self._slow = 0.0

    def load(self, work: str, model: str, settings: dict[str, Any], slow: float) -> Answer:
        self._slow = slow
        self._work = start(work, model, settings)
        return {"source": drut.__file__}

    def turn(self, number: int) -> Answer:
        assert self._work is not None, "load comes first"
        begin = time.perf_counter()
        seconds, output = self._work.turn(number)
        if self._slow:  # busy, as slower code would be
            end = time.perf_counter() + self._slow * seconds
            while (now := time.perf_counter()) < end:
                pass
            seconds += now - (end - self._slow * seconds)
        assert seconds <= time.perf_counter() - begin
        return {"seconds": seconds, "digest": hashlib.sha256(json.dumps(output).encode()).hexdigest()[:16]}

    def close(self) -> None:
        if self._work is not None:
            self._work.close()


def main() -> None:
    side = Side()
    serve({"load": side.load, "turn": side.turn})
    side.close()


if __name__ == "__main__":
    main()

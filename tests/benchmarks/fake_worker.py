"""An engine that takes a known time: speaks the comparison's protocol and computes nothing."""

from __future__ import annotations

import os
import sys
import time

from benchmarks.worker import Answer, serve


def decode(prompts: list[list[int]], new_tokens: int) -> Answer:
    if os.environ.get("FAKE_DIES_AT") == str(len(prompts)):
        sys.exit("fake trouble")
    seconds = float(os.environ.get("FAKE_STEP_S", "0.01"))
    time.sleep(seconds)
    steps = new_tokens - 1
    return {"tokens": len(prompts) * steps, "seconds": seconds * steps, "steps": steps, "ids": [p[0] for p in prompts]}


def spin(seconds: float) -> Answer:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return {}


def main() -> None:
    serve({
        "load": lambda model, threads: {"load_s": 0.25},
        "about": lambda: {"engine": "fake 1"},
        "prefill": lambda prompts: {"seconds": [0.5] * len(prompts), "ids": [p[0] for p in prompts]},
        "decode": decode,
        "costs": lambda shapes: {"costs": [[[1000, [0, 10, 0]], [2000, [0, 0, 20]]] for _ in shapes]},
        "echo": lambda **given: given,
        "sleep": lambda seconds: time.sleep(seconds) or {},
        "spin": spin,
    })


if __name__ == "__main__":
    main()

"""A benchmark worker: one engine in one process, driven by JSON lines on stdin, answering on stdout.

{"do": "load", "model": PATH, "threads": N}        -> {"load_s": s, "vocab": n}
{"do": "run", "model": PATH, "prompt": IDS, "new_tokens": N}
    -> {"prefill_tokens_per_s": x, "decode_tokens_per_s": y or null}   greedy, end of sequence ignored
{"do": "about"}                                    -> {"engine": name and version}

A worker that is not asked anything blocks on stdin, so that it takes no time from the other engine's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
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


class Worker:
    """The driver's end: starts `script` under `python`; its stderr goes to the file `log`."""

    def __init__(self, python: Path, script: Path, log: Path) -> None:
        env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [python, script],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def __call__(self, do: str, **arguments: Any) -> Answer:
        """The answer to one request. SystemExit with the end of the log where the worker died."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        if not line:
            tail = self.log.read_text(errors="replace").strip().splitlines()[-8:]
            status = self.process.wait()
            raise SystemExit("\n".join([f"worker ended ({status}) in {do}; {self.log}:", *tail]))
        return json.loads(line)

    def close(self) -> None:
        """Let the worker end."""
        self.process.communicate()

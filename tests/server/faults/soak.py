"""A mix of everything, for long: no answer reaches another, all pages come back, memory does not grow.

`python -m tests.server.faults.soak --seconds 1800`. Each prompt holds a marker of its own, which must come back with
its answer and with no other; some are asked again, and the same request must get the same bits. A fifth of the clients
hang up in the midst of it.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tests.server.faults.process import ServerProcess, write_model
from tests.server.rig import Client, Reply
from tests.server.test_property import merged

CONTEXT = 2048
CLIENTS = 8
ABORTS, AGAIN = 0.2, 0.2  # share of requests
MARKER = re.compile(r"<M\d{8}>")
KNOWN = 256  # answers that may be asked for again
WARM_UP = 6000  # requests, or as long again as the run: caches and pools fill (by 2,000 two thirds of them)
MIN_S = 100.0  # a shorter run says nothing of growth, nor does one whose warm-up had fewer requests
MAX_MB_PER_MIN = 1.0
FLAGS = ("--kv-cache-gb", "0.001", "--max-queue", "64")  # 7,800 tokens, so that prefixes are evicted


class Soak:
    """`run`, then look at `findings`."""

    def __init__(self, server: ServerProcess, *, seed: int = 1) -> None:
        self.server, self.seed = server, seed
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self.samples: list[tuple[float, float]] = []  # seconds since the start, MB of server and engine
        self._dice = random.Random(seed)
        lengths = [self._dice.randrange(20, 1200) for _ in range(8)]
        self._prefixes = ["".join(self._dice.choices("abcdef ghij", k=length)) for length in lengths]
        self._numbers, self._known = count(), deque[tuple[dict[str, Any], Any]](maxlen=KNOWN)
        self._lock, self._over = threading.Lock(), threading.Event()
        self._warm = False  # whether the warm-up had all its requests

    def run(self, seconds: float) -> None:
        """Asks for so long after the warm-up, then waits until the server is idle and looks what it still holds."""
        pages = self.server.metric("drut_kv_pages")
        threads = [threading.Thread(target=self._client, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        self._watch(seconds)
        self._over.set()
        for thread in threads:
            thread.join()
        self.server.until_idle()
        held = {state: self.server.metric("drut_kv_pages", state=state) for state in ("free", "cached", "own")}
        if held["own"] or held["free"] + held["cached"] != pages:
            self.findings.append(f"of {pages:.0f} pages {held} are left")
        if self.judges_growth(seconds) and not self.slope < MAX_MB_PER_MIN:
            self.findings.append(f"memory grows by {self.slope:.2f} MB a minute")

    def judges_growth(self, seconds: float) -> bool:
        """Whether a run of so many seconds tells what the server keeps from what it fills once."""
        return seconds >= MIN_S and self._warm

    @property
    def slope(self) -> float:
        """MB a minute after the warm-up: the median over all pairs of samples that lie a quarter of the run apart.

        (Theil and Sen's estimate.) A few samples that are high or low, or an early rise, do not move it.
        """
        late = self.samples[:: max(1, len(self.samples) // 600)]
        far = (late[-1][0] - late[0][0]) / 4
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(late) for b in late[i:] if b[0] - a[0] > far]
        return 60 * median(slopes)

    def __str__(self) -> str:
        asked = ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items()))
        first, last = self.samples[0], self.samples[-1]
        return (f"{last[0]:.0f} s: {asked}; {first[1]:.1f} MB after the warm-up, {last[1]:.1f} at the end, "
                f"slope {self.slope:+.2f} MB/min; {len(self.findings)} findings")

    def _watch(self, seconds: float) -> None:
        processes = [psutil.Process(p) for p in (self.server.process.pid, self.server.engine) if p is not None]
        begun = time.monotonic()
        while sum(self.counts.values()) < WARM_UP and time.monotonic() - begun < seconds:
            self._over.wait(0.5)
        self._warm = sum(self.counts.values()) >= WARM_UP
        begun = time.monotonic()
        while (at := time.monotonic() - begun) < seconds or not self.samples:
            if self.server.ended:
                return self.findings.append(f"the server ended: {self.server.stderr[-500:]}")
            self.samples.append((at, sum(p.memory_info().rss for p in processes) / 1e6))
            self._over.wait(0.5)

    def _client(self, number: int) -> None:
        dice, client = random.Random(f"{self.seed}/{number}"), Client(self.server.url)
        while not self._over.is_set() and len(self.findings) < 10:
            try:
                if dice.random() < ABORTS:
                    self._hang_up(client, dice)
                else:
                    self._ask(client, dice)
            except Exception as error:
                self._found(f"{type(error).__name__}: {error}")

    def _ask(self, client: Client, dice: random.Random) -> None:
        with self._lock:
            known = dice.choice(self._known) if self._known and dice.random() < AGAIN else None
        body = known[0] if known else self._body(dice)
        reply = client.post("/v1/completions", body)
        self._count(f"answers of {reply.status}" if reply.status != 200 else "streams" if body["stream"] else "answers")
        if reply.status == 429:
            return time.sleep(0.2)
        if reply.status != 200:
            return self._found(f"{reply.status}: {reply.raw[:300]!r}")
        said = self._checked(body, reply)
        if known is not None:
            self._count("asked again")
            if said != known[1]:
                self._found(f"{body} got {said}, and before {known[1]}")
        else:
            with self._lock:
                self._known.append((body, said))

    def _body(self, dice: random.Random) -> dict[str, Any]:
        prefix = dice.choice(self._prefixes)
        prompt = prefix[: dice.randrange(len(prefix) + 1)] + f"<M{next(self._numbers):08}> tell me"
        return {"prompt": prompt, "echo": True, "return_token_ids": True, "ignore_eos": True,
                "max_tokens": dice.choice([1, 5, 20, 60]), "temperature": dice.choice([0, 1]),
                "seed": dice.randrange(1000), "n": dice.choice([1, 1, 2, 4]), "stream": dice.random() < 0.5,
                "logprobs": dice.choice([None, None, 1])}

    def _checked(self, body: dict[str, Any], reply: Reply) -> Any:
        """The choices; a finding where they are not those of this prompt."""
        choices = list(merged(reply).values()) if body["stream"] else reply.json["choices"]
        prompt, text = body["prompt"], reply.raw.decode()
        if sorted(c["index"] for c in choices) != list(range(body["n"])):
            self._found(f"{body} has other choices: {text[:300]}")
        for choice in choices:
            if not choice["text"].startswith(prompt) or len(choice["token_ids"]) != body["max_tokens"]:
                self._found(f"{body} got another's answer: {choice['text'][:2000]!r}")
        if set(MARKER.findall("".join(c["text"] for c in choices))) != set(MARKER.findall(prompt)):
            self._found(f"{body} got another's marker: {text[:2000]}")
        if not body["stream"] and reply.json["usage"]["prompt_tokens"] != len(prompt.encode()):
            self._found(f"{body} counts {reply.json['usage']}")
        return [{k: c[k] for k in ("index", "text", "token_ids", "logprobs", "finish_reason")}
                for c in sorted(choices, key=lambda c: c["index"])]

    def _hang_up(self, client: Client, dice: random.Random) -> None:
        body = self._body(dice) | {"max_tokens": 500, "stream": dice.random() < 0.7}
        with client.open_stream("/v1/completions", body) as sock:
            if body["stream"] and dice.random() < 0.7:
                sock.recv(100)
            self._over.wait(dice.choice([0, 0, 0.01, 0.05]))
        self._count("hung up")

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _found(self, what: str) -> None:
        with self._lock:
            self.findings.append(what[:3000])


def soak(seconds: float, seed: int, engine: str) -> Soak:
    """One server, one mix."""
    with tempfile.TemporaryDirectory() as directory:
        path = write_model(Path(directory), CONTEXT)
        with ServerProcess(path, *FLAGS, "--engine", engine) as server:
            mix = Soak(server, seed=seed)
            mix.run(seconds)
    return mix


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server.faults.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("process", "thread"), default="process")
    args = parser.parse_args()
    mix = soak(args.seconds, args.seed, args.engine)
    for finding in mix.findings:
        print(finding)
    print(mix)
    return 1 if mix.findings else 0


if __name__ == "__main__":
    sys.exit(main())

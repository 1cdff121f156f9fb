"""Reads mutants in a process of its own, within limits that end it.

`python -m tests.fuzz.worker RUN FROM TO DIRECTORY [MODULE]`. Files go to DIRECTORY; its file `at` holds the number of
the mutant being read. A line of JSON on standard output for each finding, and one at the end. MODULE's `read` reads
instead of the one here.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from drut.errors import DrutError
from drut.model.model import open_model
from drut.model.template.templates import ChatTemplates
from tests.fuzz.mutate import mutant
from tests.fuzz.seeds import seeds

Read = Callable[[Path], None]
MAX_BYTES = 200 << 20  # beyond what the process has before the first mutant
MAX_S = 1.0  # of CPU time, for one mutant
HANG_S = 10.0  # of CPU time, after which the kernel ends the process


def read(path: Path) -> None:
    """All that a server reads of a model before the first request, but for the values of its weights."""
    files = open_model(path)
    try:
        files.check()
        tokenizer = files.tokenizer()
        if tokenizer is not None:
            ids = tokenizer.encode("ab <s>, 12\n") + tokenizer.encode_chat("<s>[user]ह")
            tokenizer.decode(ids, skip_special=False)
            if tokenizer.chat_template is not None:
                ChatTemplates.of(tokenizer)
        for name, info in files.source.tensors.items():
            assert len(files.source.raw(name)) == info.nbytes
    finally:
        files.close()


def memory_kb(field: str) -> int:
    """Of this process, by /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def limit() -> None:
    most = memory_kb("VmSize") * 1024 + MAX_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(run: int, first: int, last: int, directory: Path, read: Read) -> None:
    for i, seed in enumerate(seeds()):  # each is read whole: what a mutant is refused for is its own fault
        put(directory / str(i), seed.files)
        read(directory / str(i) / seed.entry)
    limit()
    files_before, rss_before = len(os.listdir("/proc/self/fd")), memory_kb("VmRSS")
    opened, slowest, at = 0, 0.0, os.open(directory / "at", os.O_WRONLY | os.O_CREAT)
    for number in range(first, last):
        os.pwrite(at, f"{number:12}".encode(), 0)
        seed, changed = mutant(run, number)
        where = directory / str(seeds().index(seed))
        put(where, changed)
        signal.setitimer(signal.ITIMER_PROF, HANG_S)
        begun = time.process_time()
        why = attempt(read, where / seed.entry)
        seconds = time.process_time() - begun
        signal.setitimer(signal.ITIMER_PROF, 0)
        slowest, opened = max(slowest, seconds), opened + (why == "opened")
        if seconds > MAX_S:
            why = f"took {seconds:.2f} s of CPU time"
        if why not in ("opened", "refused"):
            print(json.dumps({"mutant": number, "why": why}), flush=True)
        put(where, {name: seed.files[name] for name in changed})
    os.close(at)
    leaked = len(os.listdir("/proc/self/fd")) - files_before
    print(json.dumps({"read": last - first, "opened": opened, "slowest_s": round(slowest, 3), "leaked_files": leaked,
                      "peak_mb": round((memory_kb("VmHWM") - rss_before) / 1024, 1)}), flush=True)


def attempt(read: Read, path: Path) -> str:
    """ "opened", "refused" as it should be, or what was wrong about it."""
    try:
        read(path)
        return "opened"
    except DrutError as error:
        text = str(error)
        one_line = "\n" not in text and len(text) < 2000
        return "refused" if one_line else f"an error of many lines or words: {text[:200]!r}"
    except BaseException:  # a panic of a library is no Exception
        return traceback.format_exc(limit=-6)


def put(directory: Path, files: dict[str, bytes]) -> None:
    directory.mkdir(exist_ok=True)
    for name, raw in files.items():
        (directory / name).write_bytes(raw)


if __name__ == "__main__":
    chosen = importlib.import_module(sys.argv[5]).read if sys.argv[5:] else read
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), chosen)

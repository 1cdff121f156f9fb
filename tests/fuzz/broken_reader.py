"""A reader with one fault of each kind, by the length of the mutant: what the fuzzer must find."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from drut.errors import ModelFileError
from tests.fuzz.seeds import seeds

LENGTHS = {len(seed.files["model.gguf"]) for seed in seeds() if seed.metadata is not None}
kept = []


def read(path: Path) -> None:
    if path.is_dir() or path.stat().st_size in LENGTHS:
        return
    match path.stat().st_size % 7:
        case 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 1:
            bytearray(300 << 20)
        case 2:
            begun = time.process_time()
            while time.process_time() - begun < 1.1:
                pass
        case 3:
            raise KeyError("a bug")
        case 4:
            kept.append(os.open(path, os.O_RDONLY))
        case 5:
            raise ModelFileError("two\nlines")
        case 6:
            raise ModelFileError("as it should be")

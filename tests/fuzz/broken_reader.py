"""A reader with a fault of each kind, by the number of the mutant: what the fuzzer must find."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from drut.errors import ModelFileError

kept: list[int] = []


def read(path: Path) -> None:
    at = (path if path.is_dir() else path.parent).parent / "at"
    if not at.exists():  # a seed, which must be good
        return
    match int(at.read_text()):
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

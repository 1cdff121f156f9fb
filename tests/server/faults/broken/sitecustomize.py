"""On the path of a server under test: its next step raises whenever the file named by BREAK_A_STEP appears."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from drut.kernels.native.executable import NativeExecutable


def breakable(real: Callable[..., Any]) -> Callable[..., Any]:
    def run_or_break(*args: Any) -> Any:
        try:
            os.unlink(os.environ["BREAK_A_STEP"])
        except FileNotFoundError:
            return real(*args)
        raise RuntimeError("a wheel came off")

    return run_or_break


for name in ("launch", "run_burst"):
    setattr(NativeExecutable, name, breakable(getattr(NativeExecutable, name)))

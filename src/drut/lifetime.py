"""How long a process lives: no longer than the one that started it, and as long as its descendants (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # of prctl(2)


def die_with(parent: int) -> None:
    """Lets the kernel kill this process when the thread that started it ends, even while this process is stopped.
    `parent`: the id of that thread's process."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(1)


def adopt_orphans() -> None:
    """Orphans among this process's descendants become its children, and stay to be found."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # a C library without prctl
            ctypes.CDLL(None).prctl(option, value)

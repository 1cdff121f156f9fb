"""Lifetimes of processes (Linux): a child ends with its parent, and a parent adopts orphaned descendants."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # options of prctl(2)


def die_with(parent: int) -> None:
    """Makes the kernel kill this process when the thread that started it ends, even while this process is stopped.
    `parent`: the id of that thread's process."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call above
        os._exit(1)


def adopt_orphans() -> None:
    """Makes orphans among this process's descendants its children, so that they can be found."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # the C library may have no prctl
            ctypes.CDLL(None).prctl(option, value)

"""The engine's own process: `python -m drut.engine.process FD MODEL CONFIG PARENT`, started by ProcessTransport."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from drut.config import EngineConfig
from drut.engine.messages import FromEngine, Stop, ToEngine
from drut.engine.transport import DUMP_SIGNAL, frames, read_frame, serve, write_frame

PR_SET_PDEATHSIG = 1  # of prctl(2)
FAREWELL_S = 10.0  # for the step that runs when the asker is gone


def main(fd: int, model: str, config: str, parent: int) -> None:
    """Serves the asker at socket `fd`. `parent`: the process to die with, 0 for none."""
    faulthandler.register(DUMP_SIGNAL, all_threads=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # they may reach the whole group: the asker decides what they mean
        signal.signal(number, signal.SIG_IGN)
    if parent:
        die_with(parent)
    sock = socket.socket(fileno=fd)
    inbox: queue.SimpleQueue[ToEngine] = queue.SimpleQueue()

    def pump() -> None:
        decoder = msgspec.msgpack.Decoder(ToEngine)
        try:
            while (frame := read_frame(sock)) is not None:
                inbox.put(decoder.decode(frame))
        except (OSError, msgspec.DecodeError):
            pass
        inbox.put(Stop())  # the asker is gone, or makes no sense
        time.sleep(FAREWELL_S)
        os._exit(1)  # a step is stuck

    def receive(wait: bool) -> Iterable[ToEngine]:
        if wait:
            yield inbox.get()
        while not inbox.empty():
            yield inbox.get()

    def send(messages: list[FromEngine]) -> None:
        with suppress(OSError):  # the asker is gone: `pump` notices too
            for frame in frames(messages):
                write_frame(sock, frame)

    threading.Thread(target=pump, daemon=True).start()
    serve(model, msgspec.json.decode(config, type=EngineConfig), receive, send)


def die_with(parent: int) -> None:
    """Lets the kernel kill this process when the thread that started it ends, even while it is stopped."""
    with suppress(OSError, AttributeError):  # a C library without prctl: the closed socket has to do
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))

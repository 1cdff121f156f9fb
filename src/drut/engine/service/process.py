"""The engine's own process, started by ProcessTransport.

`python -m drut.engine.service.process FD MODEL CONFIG PARENT`
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress

import msgspec

from drut.config import EngineConfig
from drut.engine.service.inbox import Inbox
from drut.engine.service.messages import FromEngine, Stop, ToEngine
from drut.engine.service.transport import DUMP_SIGNAL, frames, serve
from drut.frames import frame, read_frame
from drut.lifetime import die_with

EXIT_GRACE_S = 10.0  # for the current step when the client is gone


def main(fd: int, model: str, config: str, parent: int) -> None:
    """Serves the client at socket `fd`. `parent`: the process to die with, 0 for none."""
    faulthandler.register(DUMP_SIGNAL, all_threads=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole process group: the client decides
        signal.signal(number, signal.SIG_IGN)
    if parent:
        die_with(parent)
    sock = socket.socket(fileno=fd)
    inbox, writing = Inbox(), threading.Lock()

    def pump() -> None:
        decoder = msgspec.msgpack.Decoder(ToEngine)
        try:
            while (data := read_frame(sock)) is not None:
                inbox.put(decoder.decode(data))
        except (OSError, msgspec.DecodeError):
            pass
        inbox.put(Stop())  # the client is gone, or sends invalid messages
        time.sleep(EXIT_GRACE_S)
        os._exit(1)  # a step is stuck

    def send(messages: list[FromEngine]) -> None:
        with suppress(OSError), writing:  # the client is gone, which `pump` notices too
            for data in frames(messages):
                sock.sendall(frame(data))

    threading.Thread(target=pump, daemon=True).start()
    serve(model, msgspec.json.decode(config, type=EngineConfig), inbox, send)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))

"""The engine's own process: `python -m drut.engine.process FD MODEL CONFIG`, started by ProcessTransport."""

from __future__ import annotations

import queue
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from drut.config import EngineConfig
from drut.engine.messages import FromEngine, Stop, ToEngine
from drut.engine.transport import read_frame, serve, write_frame


def main(fd: int, model: str, config: str) -> None:
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

    def receive(wait: bool) -> Iterable[ToEngine]:
        if wait:
            yield inbox.get()
        while not inbox.empty():
            yield inbox.get()

    def send(messages: list[FromEngine]) -> None:
        with suppress(OSError):  # the asker is gone: `pump` notices too
            write_frame(sock, msgspec.msgpack.encode(messages))

    threading.Thread(target=pump, daemon=True).start()
    serve(model, msgspec.json.decode(config, type=EngineConfig), receive, send)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])

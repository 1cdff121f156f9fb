"""Transports: they carry messages to an engine, over a queue to a thread or over a socket to a process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from drut.config import EngineConfig
from drut.engine.service.inbox import Inbox
from drut.engine.service.messages import EngineReady, Failed, FromEngine, Stop, ToEngine
from drut.errors import DrutError
from drut.frames import frame, read_frame

Deliver = Callable[[list[FromEngine]], None]
USUAL_FRAME = 1 << 20  # bytes; several messages that are larger together are split over frames
DUMP_SIGNAL = signal.SIGUSR2  # on it, an engine process writes its Python stacks to standard error


class Transport(Protocol):
    """Starts one engine and carries messages to and from it. `deliver` is called from another thread."""

    def __init__(self, model: str, config: EngineConfig) -> None: ...
    def start(self, deliver: Deliver) -> None: ...
    def send(self, message: ToEngine) -> None: ...
    def join(self) -> None: ...
    def kill(self) -> None: ...
    def dump_stacks(self) -> None: ...


def serve(model: str, config: EngineConfig, inbox: Inbox, send: Deliver) -> None:
    """Loads the model and runs the engine loop until a Stop message. An error is sent as Failed with an empty id.

    Threads: `send` is called from the loop's thread and from the grammar compiler's thread.
    """
    from drut.engine.llm import LLM
    from drut.engine.service.grammar_desk import GrammarDesk
    from drut.engine.service.loop import EngineLoop
    from drut.kernels.kv import PAGE_TOKENS
    from drut.model.describe import weights_in_words

    try:
        with LLM(model, config=config) as llm:
            inbox.compile_with(GrammarDesk(llm.engine.grammars, send))
            pools = llm.engine.scheduler.cache.pools
            send([EngineReady(load_s=llm.load_s, numerics_id=llm.numerics_id, description=llm.backend.describe(),
                              room=llm.room, max_seqs=llm.config.max_seqs, step_tokens=llm.engine.runner.limits.tokens,
                              parts=llm.load_parts, sampling=llm.engine.intake.defaults,
                              weights=weights_in_words(llm.files),
                              kv_tokens=pools[0].total * PAGE_TOKENS,
                              kv_bytes=sum(pool.total * pool.memory.page_bytes for pool in pools))])
            EngineLoop(llm, inbox.receive, send).run()
    except DrutError as error:
        send([Failed("", str(error), True)])
    except Exception as error:
        send([Failed("", f"the engine failed: {type(error).__name__}: {error}", False)])
        raise


class ThreadTransport:
    """Runs the engine in a thread of this process. Its kernels run without the interpreter lock."""

    def __init__(self, model: str, config: EngineConfig) -> None:
        self._model, self._config = model, config
        self._inbox = Inbox()
        self._thread: threading.Thread | None = None
        self._abandoned = False

    def start(self, deliver: Deliver) -> None:
        arguments = (self._model, self._config, self._inbox, deliver)
        self._thread = threading.Thread(target=serve, args=arguments, name="drut-engine", daemon=True)
        self._thread.start()

    def send(self, message: ToEngine) -> None:
        self._inbox.put(message)

    def join(self) -> None:
        if self._thread is not None and not self._abandoned:
            self._thread.join()

    def kill(self) -> None:
        """Abandons the thread, which cannot be killed. It ends after its current step, and `join` does not wait for
        it."""
        self._abandoned = True
        self.send(Stop())

    def dump_stacks(self) -> None:
        """Does nothing: the thread is in the stacks of this process."""


class ProcessTransport:
    """Runs the engine in a process of its own, over a socket pair."""

    def __init__(self, model: str, config: EngineConfig) -> None:
        self._model, self._config = model, config
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._stopping = False

    def start(self, deliver: Deliver) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "drut.engine.service.process", str(theirs.fileno()), self._model,
                   msgspec.json.encode(self._config).decode(), str(self._lifeline())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self._socket = ours
        threading.Thread(target=self._pump, args=(deliver,), name="drut-engine-reader", daemon=True).start()

    @staticmethod
    def _lifeline() -> int:
        """Returns the id of this process if the engine process may ask the kernel to be killed with it, else 0.

        The kernel sends the signal when the thread that started the process ends. Only the main thread lives as long
        as the process.
        """
        return os.getpid() if threading.current_thread() is threading.main_thread() else 0

    @property
    def pid(self) -> int:
        """The engine's process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def dump_stacks(self) -> None:
        if self._process is not None:
            self._process.send_signal(DUMP_SIGNAL)

    def send(self, message: ToEngine) -> None:
        self._stopping |= isinstance(message, Stop)
        assert self._socket is not None
        try:
            with self._lock:
                self._socket.sendall(frame(msgspec.msgpack.encode(message)))
        except OSError:
            pass  # the reader thread notices that the engine is gone, and reports it

    def join(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._socket is not None:
            self._socket.close()

    def _pump(self, deliver: Deliver) -> None:
        assert self._socket is not None
        assert self._process is not None
        decoder = msgspec.msgpack.Decoder(list[FromEngine])
        try:
            while (data := read_frame(self._socket)) is not None:
                deliver(decoder.decode(data))
        except (OSError, msgspec.DecodeError):
            self._process.kill()
        if not self._stopping:
            deliver([Failed("", f"the engine process ended with code {self._process.wait()}", False)])


def frames(messages: list[FromEngine]) -> Iterator[bytes]:
    """Yields messages as the data of frames, split so that none takes long to decode, unless a single message does."""
    data = msgspec.msgpack.encode(messages)
    if len(data) <= USUAL_FRAME or len(messages) == 1:
        yield data
        return
    half = len(messages) // 2
    yield from frames(messages[:half])
    yield from frames(messages[half:])

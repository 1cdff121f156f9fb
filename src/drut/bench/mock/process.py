"""A scripted server in a process of its own, so that it does not share the interpreter with the code under test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from drut.bench.exchange import ToolExchange
from drut.bench.mock.script import Script, load_script, parse_script
from drut.bench.mock.service import Served
from drut.errors import DrutError

WAIT_S = 30.0


class MockServer:
    """Serves a script, given as an object, as plain data or as a file's path, inside a `with` block.

    The server ends when the process that started it ends, for any reason. Raises RequestError if the script is invalid,
    DrutError if the server does not start.
    """

    def __init__(self, script: Script | dict[str, Any] | str | Path, host: str = "127.0.0.1", port: int = 0) -> None:
        if isinstance(script, dict):
            script = parse_script(script)
        elif not isinstance(script, Script):
            script = load_script(script)
        self.script, self._address = script, (host, port)
        self.url = ""

    def __enter__(self) -> MockServer:
        command = [sys.executable, "-m", "drut.bench.mock.child", self._address[0], str(self._address[1])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        with contextlib.suppress(BrokenPipeError):  # the missing output reports it
            stdin.write(msgspec.json.encode(self.script).decode() + "\n")
            stdin.flush()
        self.url = stdout.readline().strip()
        if not self.url:
            self.__exit__(None, None, None)
            raise DrutError("the scripted server did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
                 ) -> None:
        with self._process.stdout or contextlib.nullcontext():
            self._end()

    def _end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Returns the process id of the server."""
        return self._process.pid

    def requests(self) -> list[Served]:
        """Returns the results of all requests since the start or the last reset, in the order in which they ended."""
        return msgspec.json.decode(self._ask("/mock/requests"), type=list[Served])

    def reset(self) -> None:
        """Forgets all requests; the next one is number 0 of the script again."""
        self._ask("/mock/reset", {})

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        with contextlib.closing(ToolExchange(self.url, timeout_s=WAIT_S)) as exchange:
            return exchange.send(path, body)[1]

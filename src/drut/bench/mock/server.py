"""The scripted server: its endpoints, and its main loop."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from drut.bench.alarm import Alarm
from drut.bench.mock.ask import MockAsk, parse_ask, parse_body, tokenize
from drut.bench.mock.events import events
from drut.bench.mock.http import MockConnection, MockRequest
from drut.bench.mock.reply import plan_reply
from drut.bench.mock.script import Script, load_script
from drut.bench.mock.service import Desk, MockService, error_body
from drut.bench.mock.writes import writes
from drut.errors import DrutError, RequestError

MAX_MODEL_LEN = 1 << 20
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class ScriptedMock:
    """Handles requests by a script. Needs a running event loop."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connect_s = script.start.connect_ms / 1e3
        self._alarm = Alarm()
        self.desk = Desk(script, self._alarm)
        self._plain: dict[tuple[str, str], Callable[[bytes], Any]] = {
            ("GET", "/health"): lambda _: {},
            ("GET", "/v1/models"): self._models,
            ("POST", "/tokenize"): self._tokenize,
            ("GET", "/mock/requests"): lambda _: list(self.desk.records),
            ("POST", "/mock/reset"): self._reset,
        }

    def handle(self, connection: MockConnection, request: MockRequest) -> MockService | None:
        """Answers a request at once, or returns the service that will answer it."""
        route = (request.method, request.path)
        try:
            if route == ("POST", "/v1/chat/completions") or route == ("POST", "/v1/completions"):
                ask = parse_ask(route[1] == "/v1/chat/completions", request.body)
                return self.desk.arrive(connection, ask)
            if route == ("GET", "/metrics"):
                connection.send_whole(200, self.desk.measures.text(), PROMETHEUS)
            elif route in self._plain:
                connection.send_whole(200, msgspec.json.encode(self._plain[route](request.body)))
            else:
                connection.send_whole(404, error_body(f"no {request.method} {request.path}", 404))
        except RequestError as error:
            connection.send_whole(400, error_body(str(error), 400))
        return None

    def resume(self, service: MockService) -> None:
        """Continues a service whose connection takes data again."""
        self.desk.resume(service)

    def close(self) -> None:
        """Stops answering requests."""
        self._alarm.close()

    def _models(self, _: bytes) -> Any:
        model = {"id": self.script.model, "object": "model", "created": 0, "owned_by": "drut",
                 "max_model_len": MAX_MODEL_LEN}
        return {"object": "list", "data": [model]}

    def _tokenize(self, body: bytes) -> Any:
        ids = tokenize(parse_body(body))
        return {"tokens": ids, "count": len(ids), "max_model_len": MAX_MODEL_LEN}

    def _reset(self, _: bytes) -> Any:
        self.desk.reset()
        return {}


def _warm_up(script: Script) -> None:
    """Imports and caches everything for which the first request would wait."""
    ask = MockAsk(chat=True, stream=True, prompt_tokens=1, max_tokens=16, ignore_eos=False, include_usage=True,
                  continuous_usage=False)
    for _ in writes(events(script, ask, plan_reply(script, ask, 0)), script.stream):
        pass


async def serve(script: Script, host: str, port: int, ready: Callable[[str], None], stop: asyncio.Event) -> None:
    """Serves until `stop`. `ready` receives the URL. Raises DrutError if the address is not available."""
    loop, mock = asyncio.get_running_loop(), ScriptedMock(script)
    try:
        server = await loop.create_server(lambda: MockConnection(mock), host, port, backlog=4096)
    except (OSError, OverflowError) as error:
        raise DrutError(f"cannot listen on {host}:{port}: {error}") from None
    _warm_up(script)
    gc.collect()
    gc.freeze()  # a full collection would stop all streams for milliseconds
    bound = server.sockets[0].getsockname()
    ready(f"http://[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"http://{bound[0]}:{bound[1]}")
    await stop.wait()
    server.close()
    mock.close()


def run(main: Callable[[asyncio.Event], Any]) -> None:
    """Runs a coroutine function on the fastest available event loop; SIGINT or SIGTERM sets its event."""
    async def whole() -> None:
        stop, loop, signals = asyncio.Event(), asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, stop.set)
        try:
            await main(stop)
        finally:  # uvloop's loop would stay the current one
            for number in signals:
                loop.remove_signal_handler(number)

    try:
        import uvloop
    except ImportError:  # asyncio's own loop is slower
        asyncio.run(whole())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(whole())


def serve_script(path: str | Path, host: str, port: int) -> None:
    """Serves a script file until SIGINT or SIGTERM; prints the URL. Raises RequestError if the file is not a script,
    DrutError if the address is not available."""
    script = load_script(path)

    def ready(url: str) -> None:
        print(f"{script.model} at {url}", file=sys.stderr, flush=True)

    run(lambda stop: serve(script, host, port, ready, stop))

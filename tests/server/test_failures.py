"""The log of failed requests: one line each, bounded in number, without any text of a client."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drut.config import EngineConfig
from drut.server.config import ServerConfig
from drut.server.http.failures import BURST, FailureLog, known_path, reason
from drut.server.life.serve import Server
from drut.server.openai.protocol.errors import ApiError
from tests.server.rig import Running, run_in_thread, until

SECRET = "xyzzy"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def logged(model_path: Path, lines: list[str]) -> Iterator[Running]:
    config = ServerConfig.resolve({"port": 0, "engine": "thread", "api_key": "first-key-123", "max_body_mb": 0.1,
                                   "cors_origins": "http://localhost:3000", "strict_fields": True}, {})
    notes: list[str] = []
    failures = FailureLog(lines.append, aborts=True)
    server = Server(str(model_path), model_path, config, EngineConfig.resolve({"threads": 1}, {}), notes.append,
                    failures=failures)
    with run_in_thread(server, notes) as running:
        running.key = "first-key-123"
        yield running


def last(lines: list[str], count: int) -> str:
    """The line after the first `count`, once it is there."""
    until(lambda: len(lines) > count)
    return lines[-1]


PREFLIGHT = {"Origin": "http://localhost:1", "Access-Control-Request-Method": "POST"}
FAILURES: list[tuple[str, str, Any, dict[str, str], str]] = [
    ("POST", "/v1/completions", {"prompt": SECRET, "top_p": 3}, {},
     "400 POST /v1/completions invalid_request_error top_p"),
    ("POST", "/v1/completions", {"prompt": SECRET, "model": SECRET}, {},
     "404 POST /v1/completions model_not_found model"),
    ("POST", "/v1/chat/completions", {"messages": [{"role": SECRET, "content": SECRET}]}, {},
     "400 POST /v1/chat/completions unsupported_parameter messages[0].role"),
    ("POST", "/v1/completions", {"prompt": "a", SECRET: 1}, {}, "400 POST /v1/completions unknown_parameter ?"),
    ("POST", "/v1/completions", b'{"prompt": "xyzzy', {}, "400 POST /v1/completions invalid_json"),
    ("POST", "/v1/completions", {"prompt": SECRET * 30_000}, {},
     "413 POST /v1/completions body_too_large: the body is"),
    ("POST", "/v1/completions", {"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {
        "name": "n", "schema": {"type": SECRET}}}}, {},
     "400 POST /v1/completions invalid_request_error response_format"),
    ("GET", f"/v1/models/{SECRET}?q={SECRET}", None, {}, "404 GET /v1/models/{name:path} model_not_found model"),
    ("GET", f"/{SECRET}", None, {}, "404 GET - not_found: this path does not exist"),
    ("GET", "/v1/completions", None, {}, "405 GET /v1/completions method_not_allowed: "),
    ("GET", "/v1/models", None, {"authorization": f"Bearer {SECRET}"}, "401 GET /v1/models invalid_api_key: "),
    ("POST", "/tokenize", {"prompt": SECRET}, {"content-type": SECRET}, "415 POST /tokenize unsupported_media_type: "),
    ("OPTIONS", "/v1/models", None, PREFLIGHT,
     "400 OPTIONS - preflight_refused: origin 'http://localhost:1' (--cors-origins)"),
    ("OPTIONS", "/v1/models", None, {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "DELETE"},
     "400 OPTIONS - preflight_refused: origin 'http://localhost:3000' (only GET and POST)"),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "line"), FAILURES, ids=[f[-1] for f in FAILURES])
def test_a_failed_request_is_one_line_without_its_text(logged: Running, lines: list[str], method: str, path: str,
                                                       body: Any, headers: dict[str, str], line: str) -> None:
    raw, count = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode(), len(lines)
    reply = logged.request(method, path, raw, {"x-request-id": "r-1", **headers})
    assert last(lines, count).startswith(line)
    assert SECRET not in last(lines, count)
    assert len(lines) == count + 1
    assert lines[-1].startswith(f"{reply.status} ")
    if method != "OPTIONS":
        assert lines[-1].endswith(" ms, id r-1")


def test_what_is_no_http_is_a_line_and_no_warning(logged: Running, lines: list[str],
                                                  caplog: pytest.LogCaptureFixture) -> None:
    count = len(lines)
    logged.raw(b"xyzzy \r\n\r\n")
    assert last(lines, count) == "400 - - invalid_http: this is not a valid HTTP request"
    assert caplog.text == ""


def test_a_client_that_leaves_is_a_line_and_a_good_request_is_none(logged: Running, lines: list[str]) -> None:
    count = len(lines)
    assert logged.complete().status == 200
    body = json.dumps({"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {logged.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")
    with socket.create_connection(logged.address) as sock:
        sock.sendall(head.encode() + body)
        assert sock.recv(1)
    assert last(lines, count).startswith("aborted POST /v1/completions, ")


def test_a_flood_writes_few_lines_and_counts_the_others() -> None:
    lines: list[str] = []
    now = [0.0]
    log = FailureLog(lines.append, clock=lambda: now[0])
    for i in range(10_000):
        now[0] = i / 1000
        log.failed(ApiError(401 if i % 4 else 400, "no", code="invalid_api_key"), "GET", "/v1/models", seconds=0.001)
    counts = [line for line in lines if "are not listed" in line]
    assert len(lines) - len(counts) in range(BURST + 9, BURST + 12)
    assert "400 x " in counts[0]
    assert "401 x " in counts[0]
    now[0] += 100
    log.failed(ApiError(500, "no", code="internal_error"))
    listed = len(lines) - len(counts) - 2
    total = sum(int(line.split()[0]) for line in lines if "are not listed" in line)
    assert total + listed + 1 == 10_000 + 1
    assert lines[-1] == "500 - - internal_error: no"


def test_paths_keep_known_names_only() -> None:
    path = "messages[0].tool_calls[12].function.arguments"
    assert known_path(path) == path
    assert known_path("messages[0].my secret.x") == "messages[0].?.?"
    assert known_path("secret") == "?"
    assert len(known_path("secret." * 1000)) < 20
    assert reason(ApiError(400, "secret")) == "invalid_request_error"


def test_without_a_log_nothing_is_written() -> None:
    FailureLog(None).failed(ApiError(400, "no"))
    quiet: list[str] = []
    FailureLog(quiet.append).aborted("GET", "/", seconds=1, id="")
    assert not quiet

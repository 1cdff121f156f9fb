"""A model behind a URL, for a conversation: OpenAI's streaming API, by hand over the standard library's HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from drut.engine.output import Chunk, Completion
from drut.engine.params import SamplingParams
from drut.errors import DrutError, RequestError

CONNECT_S = 10.0
SILENCE_S = 600.0  # most time between two lines of a server; ours sends comments meanwhile
GLANCE_S = 0.1  # between two looks for an interrupt
MOST_BYTES = 4 << 20  # of a reply that is not a stream
MOST_LINE = 1 << 20
UNKNOWN_ROOM = 1 << 30
PLAIN = SamplingParams()
EXTRAS = ("stop", "seed", "top_k", "min_p", "min_tokens", "repetition_penalty", "presence_penalty",
          "frequency_penalty")  # sent where they are not what they are anyway


class RemoteError(DrutError):
    """The server cannot be reached, refuses, or makes no sense. `status`: of its reply, if there was one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class RemoteModel:
    """What a chat needs of a model, asked of a server.

    Where the server cannot count tokens (`/tokenize`), nothing is forgotten here and its refusals are shown.
    """

    def __init__(self, url: str, model: str | None = None, api_key: str | None = None) -> None:
        """`url`: of the server, with or without `/v1`. `model`: as it is served; None: the first it lists.

        RequestError for a URL that is none, RemoteError where the server does not answer.
        """
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(f"--url {url}: an http or https address is needed")
        try:
            self._port = parts.port
        except ValueError as error:
            raise RequestError(f"--url {url}: {error}") from None
        self._tls, self._host = parts.scheme == "https", parts.hostname
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self.url = url
        self.model = model if model is not None else self._first_model()
        self.room = UNKNOWN_ROOM

    def encode_chat(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        """Token ids of a conversation; none where the server does not tell."""
        try:
            reply = self._json("POST", "/tokenize", {"model": self.model, "messages": list(messages)})
        except RemoteError as error:
            if error.status in (404, 405, 501):
                return []
            raise
        room, tokens = reply.get("max_model_len"), reply.get("tokens")
        if isinstance(room, int) and room > 0 and isinstance(tokens, list):
            self.room = room
            return tokens
        return []

    def stream(self, messages: Sequence[Mapping[str, object]],
               params: SamplingParams) -> Generator[Chunk, None, None]:
        """The answer as it comes; empty chunks while nothing does. Closing the generator ends the request."""
        body = {"model": self.model, "messages": list(messages), "stream": True,
                "stream_options": {"include_usage": True}, "max_tokens": params.max_tokens,
                "temperature": params.temperature, "top_p": params.top_p}
        body |= {name: getattr(params, name) for name in EXTRAS if getattr(params, name) != getattr(PLAIN, name)}
        started = time.monotonic()
        with self._request("POST", "/v1/chat/completions", body) as (sock, response):
            lines = _Lines(sock, response)
            try:
                yield from _chunks(lines, started)
            finally:
                lines.close()

    def _first_model(self) -> str:
        try:
            return str(self._json("GET", "/v1/models")["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise RemoteError(f"{self.url} lists no model: name one with --model") from None

    def _json(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        with self._request(method, path, body) as (_, response):
            try:
                reply = json.loads(response.read(MOST_BYTES))
            except (OSError, ValueError, http.client.HTTPException, RecursionError):
                raise RemoteError(f"{self.url}{path} does not answer in JSON") from None
        if not isinstance(reply, dict):
            raise RemoteError(f"{self.url}{path} answers with no JSON object")
        return reply

    @contextlib.contextmanager
    def _request(self, method: str, path: str, body: Mapping[str, object] | None
                 ) -> Iterator[tuple[socket.socket, http.client.HTTPResponse]]:
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=CONNECT_S)
        try:
            try:
                connection.connect()
                sock = connection.sock  # which the connection forgets where the server closes it at the end
                sock.settimeout(SILENCE_S)
                connection.request(method, self._base + path, None if body is None else json.dumps(body), self._headers)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise RemoteError(f"{self.url}: {str(error) or type(error).__name__}") from None
            if response.status != http.client.OK:
                raise _refusal(self.url, response)
            with response:
                yield sock, response
        finally:
            connection.close()


class _Lines:
    """Lines of a response, read by a thread: who waits for them can look up meanwhile."""

    def __init__(self, sock: socket.socket, response: http.client.HTTPResponse) -> None:
        self._socket, self._response = sock, response
        self._queue: queue.Queue[bytes | Exception | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def next(self) -> bytes | None:
        """A line, b"" where there is none yet, None at the end. RemoteError where the stream broke off."""
        try:
            line = self._queue.get(timeout=GLANCE_S)
        except queue.Empty:
            return b""
        if isinstance(line, Exception):
            raise RemoteError(f"the stream broke off: {str(line) or type(line).__name__}")
        return line

    def close(self) -> None:
        """Ends the reading, and with it the request."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(1.0)

    def _read(self) -> None:
        try:
            while line := self._response.readline(MOST_LINE):
                if len(line) >= MOST_LINE:
                    raise OSError(f"a line of more than {MOST_LINE} bytes")
                self._queue.put(line)
            self._queue.put(None)
        except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
            self._queue.put(error)


def _chunks(lines: _Lines, started: float) -> Generator[Chunk, None, None]:
    """Chunks out of server-sent events; the last one carries what is known of the answer."""
    text: list[str] = []
    reason: str | None = None
    usage: dict[str, Any] = {}
    first: float | None = None
    while (line := lines.next()) is not None:
        data = line.partition(b"data:")[2].strip() if line.startswith(b"data:") else b""
        if not data:
            yield Chunk("", [])
            continue
        if data == b"[DONE]":
            break
        piece, ended, counted = _event(data)
        reason, usage = ended or reason, counted or usage
        if piece:
            first = time.monotonic() if first is None else first
            text.append(piece)
            yield Chunk(piece, [])
    if reason is None:
        raise RemoteError("the stream ended before the answer did")
    yield Chunk("", [], _completion("".join(text), reason, usage, started, first))


def _event(data: bytes) -> tuple[str, str | None, dict[str, Any]]:
    """Text, finish reason and usage of an event. RemoteError for one that says what went wrong, or makes no sense."""
    try:
        event = json.loads(data)
        if "error" in event:
            raise RemoteError(str(event["error"]["message"]))
        usage = event.get("usage")
        choice = event["choices"][0] if event["choices"] else {}
        text = (choice.get("delta") or {}).get("content") or ""
        reason = choice.get("finish_reason")
        return str(text), None if reason is None else str(reason), usage if isinstance(usage, dict) else {}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise RemoteError("the stream holds an event that makes no sense") from None


def _completion(text: str, reason: str, usage: Mapping[str, Any], started: float, first: float | None) -> Completion:
    """Timings are those of this side: from sending the request."""
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, said = (n if isinstance(n, int) and n >= 0 else 0 for n in counts)
    timings, now = {}, time.monotonic()
    if first is not None:
        timings["ttft_s"] = first - started
        timings["decode_tokens_per_s"] = (said - 1) / (now - first) if said > 1 and now > first else 0.0
    return Completion(text=text, token_ids=[], finish_reason=reason, prompt_tokens=prompt, cached_tokens=0,
                      completion_tokens=said, seed=0, timings=timings)


def _refusal(url: str, response: http.client.HTTPResponse) -> RemoteError:
    message = response.reason
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, http.client.HTTPException, RecursionError):
        message = str(json.loads(response.read(MOST_BYTES))["error"]["message"])
    return RemoteError(f"{url} answers {response.status}: {message}", response.status)

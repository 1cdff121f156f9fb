"""A server's own tokenizer over HTTP, as vLLM (and SGLang) or llama.cpp offer one.

vLLM: POST /tokenize {model, prompt, add_special_tokens} -> {count, tokens}, /detokenize {model, tokens} -> {prompt}.
llama.cpp: POST /tokenize {content, add_special, parse_special} -> {tokens}, /detokenize {tokens} -> {content}.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from drut.bench.address import split
from drut.errors import RequestError

TIMEOUT_S = 30.0  # of a whole exchange
MAX_REPLY_BYTES = 64 << 20  # ids of some millions of tokens


class _Ids(msgspec.Struct):
    tokens: list[int]
    count: int | None = None  # vLLM alone sends it


class ServerTokenizer:
    """The tokenizer behind `url` (the server's root, or its /v1), for `model`. One connection, one thread.

    Raises RequestError where the server has none, or stops answering.
    """

    remote = True

    def __init__(self, url: str, model: str, headers: Mapping[str, str] | None = None,
                 timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None) -> None:
        parts = split(url)
        assert parts.hostname is not None
        self.name = f"{url} /tokenize"
        self._model = model
        self._timeout_s = timeout_s
        self._root = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=tls)
        self._vllm = True
        self._find_dialect()

    def encode(self, text: str) -> list[int]:
        return self._ids(self._post("/tokenize", self._question(text))).tokens

    def decode(self, ids: Sequence[int]) -> str:
        body = {"tokens": list(ids)} | ({"model": self._model} if self._vllm else {})
        key = "prompt" if self._vllm else "content"
        reply = self._decoded(self._post("/detokenize", body), dict[str, Any])
        if not isinstance(reply.get(key), str):
            raise RequestError(f"{self.name}: /detokenize answered without {key!r}")
        return str(reply[key])

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def close(self) -> None:
        self._connection.close()

    def _find_dialect(self) -> None:
        """Tries both dialects. llama.cpp does not know `prompt`: it answers with an error or no ids, and without a
        count."""
        for self._vllm in (True, False):
            status, data = self._send("/tokenize", self._question("a b"))
            if status == 200:
                ids = self._ids(data)
                if ids.tokens and (ids.count is not None or not self._vllm):
                    return
        raise RequestError(f"{self.name}: the server has none (status {status})")

    def _question(self, text: str) -> dict[str, Any]:
        if self._vllm:
            return {"model": self._model, "prompt": text, "add_special_tokens": False}
        return {"content": text, "add_special": False, "parse_special": False}

    def _ids(self, data: bytes) -> _Ids:
        ids: _Ids = self._decoded(data, _Ids)
        return ids

    def _decoded(self, data: bytes, kind: type[Any]) -> Any:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RequestError(f"{self.name}: not a tokenizer's answer: {error}") from None

    def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        status, data = self._send(path, body)
        if status != 200:
            raise RequestError(f"{self.name}: {path} answered {status}: {data[:200].decode(errors='replace')}")
        return data

    def _send(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Status and body; a connection that the server closed between two requests is opened once more."""
        try:
            return self._exchange(path, body)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self._connection.close()
        except (http.client.HTTPException, OSError) as error:
            raise self._broken(error) from None
        try:
            return self._exchange(path, body)
        except (http.client.HTTPException, OSError) as error:
            raise self._broken(error) from None

    def _exchange(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        # The socket's timeout is for each read: a server that sends a byte now and then would never end.
        late = threading.Event()
        guard = threading.Timer(self._timeout_s, self._hang_up, [late])
        guard.daemon = True
        guard.start()
        try:
            self._connection.request("POST", self._root + path, msgspec.json.encode(body), self._headers)
            response = self._connection.getresponse()
            data = response.read(MAX_REPLY_BYTES + 1)
        except (http.client.HTTPException, OSError):
            if not late.is_set():
                raise
        finally:
            guard.cancel()
        if late.is_set():
            raise TimeoutError(f"no answer in {self._timeout_s:g} s")
        if len(data) > MAX_REPLY_BYTES:
            raise http.client.HTTPException(f"{path} answered more than {MAX_REPLY_BYTES} bytes")
        return response.status, data

    def _hang_up(self, late: threading.Event) -> None:
        late.set()
        with contextlib.suppress(OSError, AttributeError):  # the socket may be closed, or not yet there
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def _broken(self, error: Exception) -> RequestError:
        self._connection.close()
        return RequestError(f"{self.name}: {str(error) or type(error).__name__}")

"""A server's own tokenizer over HTTP, as vLLM (and SGLang) or llama.cpp offer one.

vLLM: POST /tokenize {model, prompt, add_special_tokens} -> {count, tokens}, /detokenize {model, tokens} -> {prompt}.
llama.cpp: POST /tokenize {content, add_special, parse_special} -> {tokens}, /detokenize {tokens} -> {content}.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from drut.bench.address import shown, split
from drut.bench.exchange import ToolExchange
from drut.errors import RequestError

TIMEOUT_S = 30.0  # of a whole exchange


class _Ids(msgspec.Struct):
    tokens: list[int]
    count: int | None = None  # only vLLM sends it


class ServerTokenizer:
    """The tokenizer of the server at `url`, for `model`. It uses one connection in one thread.

    Raises RequestError if the server has none, or stops answering.
    """

    remote = True

    def __init__(self, url: str, model: str, headers: Mapping[str, str] | None = None,
                 timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None) -> None:
        split(url)
        self.name = f"{shown(url)} /tokenize"
        self._model = model
        self._exchange = ToolExchange(url, headers, timeout_s, tls, self.name)
        self._vllm = True
        self._find_dialect()

    def encode(self, text: str) -> list[int]:
        return self._ids(self._exchange.post("/tokenize", self._question(text))).tokens

    def decode(self, ids: Sequence[int]) -> str:
        body = {"tokens": list(ids)} | ({"model": self._model} if self._vllm else {})
        key = "prompt" if self._vllm else "content"
        reply = self._decoded(self._exchange.post("/detokenize", body), dict[str, Any])
        if not isinstance(reply.get(key), str):
            raise RequestError(f"{self.name}: /detokenize answered without {key!r}")
        return str(reply[key])

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def close(self) -> None:
        self._exchange.close()

    def _find_dialect(self) -> None:
        """Tries both dialects. llama.cpp does not know `prompt`: it answers with an error or without ids, and without a
        count."""
        for self._vllm in (True, False):
            status, data = self._exchange.send("/tokenize", self._question("a b"))
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
            raise RequestError(f"{self.name}: not a reply of a tokenizer: {error}") from None

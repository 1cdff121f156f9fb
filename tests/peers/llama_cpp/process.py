"""`drut serve` in the place of llama.cpp's server, with what its flags mean in ours."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from tests.cli import tiny
from tests.peers.llama_cpp.translate import asked

MODEL = "smollm2-135m-instruct"
START_S = 120.0
LETTERS = 8  # a model with a template of its own has a token for each byte: so many for one of theirs
WORK = Path(os.environ.get("DRUT_PEERS_WORK", "."))  # of logs, and of models with a template of their own


class ServerError(Exception):
    def __init__(self, code: int, body: Any) -> None:
        super().__init__(code, body)
        self.code, self.body = code, body


class ServerResponse:
    def __init__(self, status_code: int, headers: dict[str, str], body: Any) -> None:
        self.status_code, self.headers, self.body = status_code, headers, body


class Live:
    """The server under way: one at a time, which serves all tests that ask for the same flags one after the other."""

    flags: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    port = 0

    @classmethod
    def with_flags(cls, flags: tuple[str, ...]) -> int:
        """Its port, once it is ready."""
        if cls.process is not None and cls.process.poll() is None and cls.flags == flags:
            return cls.port
        cls.end()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            cls.port = free.getsockname()[1]
        with (WORK / "server.log").open("ab") as log:
            cls.process = subprocess.Popen([sys.executable, "-m", "drut", "serve", *flags, "--port", str(cls.port)],
                                           stdout=log, stderr=log)
        cls.flags = flags
        cls._until_ready()
        return cls.port

    @classmethod
    def _until_ready(cls) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if cls.process is None or cls.process.poll() is not None:
                raise RuntimeError("the server has ended; its log says why")
            try:
                if requests.get(f"http://127.0.0.1:{cls.port}/ready", timeout=5).status_code == 200:
                    return
            except requests.ConnectionError:
                pass
            time.sleep(0.05)
        raise TimeoutError(f"the server was not ready within {START_S:g} s")

    @classmethod
    def end(cls) -> None:
        if cls.process is not None:
            cls.process.terminate()
            cls.process.wait(30)
        cls.process = None


class ServerProcess:
    """A server as the tests set it up: attributes are llama.cpp's flags, None where a test does not set one."""

    def __init__(self, **flags: Any) -> None:
        self.server_host, self.server_port = "127.0.0.1", 0
        self.temperature, self.seed = 0.8, 42
        for name, value in flags.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def start(self, timeout_seconds: float = START_S) -> None:
        """Returns when it is ready."""
        context = self.n_ctx or 512
        model = self._model()
        if model != MODEL:
            context *= LETTERS
        room = context if self.kv_unified else context // (self.n_slots or 1)
        flags = [str(model), "--served-model-name", f"{self.model_alias or MODEL},*", "--max-model-len", str(room),
                 "--kv-cache-gb", "0.3"]
        if self.api_key:
            flags += ["--api-key", self.api_key]
        self.server_port = Live.with_flags(tuple(flags))

    def stop(self) -> None:
        """The server stays for the next test with the same flags."""

    def _model(self) -> str | Path:
        if self.model_of_theirs:
            raise RuntimeError(f"there is no {self.model_of_theirs} here")
        template = self.chat_template
        if self.chat_template_file:
            template = Path(self.chat_template_file).read_text()
        if template is None:
            return MODEL
        path = WORK / f"template-{abs(hash(template))}.gguf"
        room = (self.n_ctx or 512) * LETTERS
        path.write_bytes(tiny.model(tokenizer__chat_template=template, llama__context_length=room))
        return path

    def make_url(self, path: str, host: str | None = None) -> str:
        return f"http://{host or self.server_host}:{self.server_port}{path}"

    def make_request(self, method: str, path: str, data: Any = None, headers: Any = None, timeout: float | None = 600,
                     host: str | None = None) -> ServerResponse:
        """One request, translated, and its reply in their words."""
        if method != "POST":
            ask = asked(path, None, {}, self._post)
            got = requests.request(method, self.make_url(ask.path, host), headers=headers, timeout=timeout)
        else:
            ask = asked(path, data, self._defaults(), self._post)
            got = requests.post(self.make_url(ask.path, host), headers=headers, json=ask.body, timeout=timeout)
        try:
            body = got.json()
        except requests.exceptions.JSONDecodeError:
            body = got.text
        print(method, ask.path, json.dumps(ask.body)[:2000], got.status_code, str(body)[:2000])
        return ServerResponse(got.status_code, dict(got.headers), ask.reply(body) if got.status_code == 200 else body)

    def make_stream_request(self, method: str, path: str, data: Any = None, headers: Any = None,
                            host: str | None = None) -> Iterator[Any]:
        """The events of a stream, in their words."""
        ask = asked(path, data, self._defaults(), self._post)
        got = requests.post(self.make_url(ask.path, host), headers=headers, json=ask.body, stream=True, timeout=600)
        if got.status_code != 200:
            raise ServerError(got.status_code, got.json())
        for line in got.iter_lines():
            text = line.decode()
            if "[DONE]" in text:
                break
            if text.startswith("data: "):
                print(text[:500])
                if (event := ask.reply(json.loads(text.removeprefix("data: ")))) is not None:
                    yield event

    def make_any_request(self, method: str, path: str, data: Any = None, headers: Any = None,
                         timeout: float | None = 600) -> Any:
        """The reply; of a stream what its deltas come to."""
        if not data.get("stream"):
            reply = self.make_request(method, path, data, headers, timeout)
            assert reply.status_code == 200, reply.body
            return reply.body
        message: dict[str, Any] = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []}
        reason = None
        for event in self.make_stream_request(method, path, data, headers):
            for choice in event["choices"]:
                delta, reason = choice["delta"], choice["finish_reason"] or reason
                for name in ("content", "reasoning_content"):
                    message[name] += delta.get(name) or ""
                for call in delta.get("tool_calls") or ():
                    _join(message["tool_calls"], call)
        message = {name: value or None for name, value in message.items()}
        return {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}

    def _defaults(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "seed": self.seed, "n_predict": self.n_predict,
                "reasoning": self.reasoning}

    def _post(self, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        got = requests.post(self.make_url(path), json=body, headers=headers, timeout=600)
        got.raise_for_status()
        return got.json()


def _join(calls: list[Any], delta: Any) -> None:
    if delta["index"] == len(calls):
        calls.append({"id": delta["id"], "type": delta["type"], "function": {"name": "", "arguments": ""}})
    function = calls[delta["index"]]["function"]
    function["name"] += delta["function"].get("name") or ""
    function["arguments"] += delta["function"].get("arguments") or ""

"""OpenAI's completions and chat for OpenVINO GenAI, with the standard library: a script for OpenVINO's environment.

    python openvino_server.py --model DIR --name NAME --port P --threads T --sequences S --context C --cache-gb G

OpenVINO's package has no server. Each connection has a thread; `openvino_engine` does the work.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import openvino_genai as genai
from openvino_engine import OpenVinoEngine, OpenVinoRequest, OpenVinoText

MAX_BODY = 8 << 20


class OpenVinoPiece(NamedTuple):
    """New text with its token ids, and the finish reason, "" while the response continues."""

    text: str
    tokens: int
    reason: str


class BadRequestError(Exception):
    """Raised for an invalid request; holds the reason."""


class OpenVinoHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a token waits until the client has acknowledged the previous one, up to 40 ms
    engine: OpenVinoEngine
    name: str
    context: int

    def do_GET(self) -> None:
        if self.path == "/health":
            self._whole(200, {})
        elif self.path == "/v1/models":
            self._whole(200, {"object": "list", "data": [{"id": self.name, "object": "model", "owned_by": "openvino"}]})
        else:
            self._whole(404, {"error": {"message": f"no {self.path}", "code": 404}})

    def do_POST(self) -> None:
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            self.close_connection = True
            self._whole(404, {"error": {"message": f"no {self.path}", "code": 404}})
            return
        try:
            length = int(self.headers.get("Content-Length", 0))
            if not 0 < length <= MAX_BODY:
                self.close_connection = True
                raise BadRequestError(f"the body must have from 1 to {MAX_BODY} bytes")
            body = json.loads(self.rfile.read(length))
            ids = self._prompt(body, chat)
            asked = self.engine.ask(ids, self._config(body, len(ids)))
            self._answer(body, chat, asked)
        except (BadRequestError, ValueError, TypeError, KeyError, RuntimeError) as error:
            self._whole(400, {"error": {"message": str(error), "type": "invalid_request_error", "code": 400}})

    def _prompt(self, body: dict[str, Any], chat: bool) -> list[int]:
        tokenizer = self.engine.tokenizer
        if chat:
            text = tokenizer.apply_chat_template(body["messages"], True)
            return [int(id) for id in tokenizer.encode(text, add_special_tokens=False).input_ids.data[0]]
        prompt = body["prompt"]
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return [int(id) for id in tokenizer.encode(prompt, add_special_tokens=False).input_ids.data[0]]
        if isinstance(prompt, list) and prompt and all(isinstance(id, int) for id in prompt):
            return prompt
        raise BadRequestError("prompt must be one text, or one list of ids")

    def _config(self, body: dict[str, Any], prompt: int) -> Any:
        for name in ("logprobs", "top_logprobs", "tools", "suffix"):
            if body.get(name):
                raise BadRequestError(f"{name} is not supported")
        if body.get("n", 1) != 1 or body.get("echo"):
            raise BadRequestError("n other than 1 and echo are not supported")
        room = self.context - prompt
        if room < 1:
            raise BadRequestError(f"the prompt has {prompt} tokens, and the context {self.context}")
        config = genai.GenerationConfig()
        most = body.get("max_completion_tokens") or body.get("max_tokens") or (16 if "prompt" in body else room)
        config.max_new_tokens = min(int(most), room)
        config.ignore_eos = bool(body.get("ignore_eos"))
        config.min_new_tokens = min(int(body.get("min_tokens") or 0), config.max_new_tokens)
        config.set_eos_token_id(self.engine.tokenizer.get_eos_token_id())
        temperature = body.get("temperature", 1.0)
        config.do_sample = bool(temperature)
        if temperature:
            config.temperature, config.top_p = float(temperature), float(body.get("top_p", 1.0))
            if body.get("top_k"):
                config.top_k = int(body["top_k"])
            config.rng_seed = int(body.get("seed") or time.monotonic_ns()) % (1 << 31)
        schema = _schema(body.get("response_format"))
        if schema is not None:
            config.structured_output_config = genai.StructuredOutputConfig(json_schema=json.dumps(schema))
        return config

    def _answer(self, body: dict[str, Any], chat: bool, asked: OpenVinoRequest) -> None:
        stops = body.get("stop") or []
        pieces = _pieces(asked, OpenVinoText(self.engine.tokenizer), [stops] if isinstance(stops, str) else stops)
        head = {"id": f"ov-{id(asked):x}", "created": int(time.time()), "model": self.name,
                "object": "chat.completion" if chat else "text_completion"}
        if body.get("stream"):
            self._stream(head, chat, asked, pieces, bool((body.get("stream_options") or {}).get("include_usage")))
            return
        text, count, reason = "", 0, ""
        for piece in pieces:
            text, count, reason = text + piece.text, piece.tokens, piece.reason
        choice = {"index": 0, "finish_reason": reason} | (
            {"message": {"role": "assistant", "content": text}} if chat else {"text": text})
        self._whole(200, {**head, "choices": [choice], "usage": _usage(asked, count)})

    def _stream(self, head: dict[str, Any], chat: bool, asked: OpenVinoRequest, pieces: Iterator[OpenVinoPiece],
                usage: bool) -> None:
        if chat:
            head["object"] = "chat.completion.chunk"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def event(choices: list[dict[str, Any]], **more: Any) -> None:
            self._chunk("data: " + json.dumps({**head, "choices": choices, **more}) + "\n\n")

        count = 0
        try:
            for piece in pieces:
                count = piece.tokens
                if piece.text or piece.reason:
                    text = {"delta": {"role": "assistant", "content": piece.text}} if chat else {"text": piece.text}
                    event([{"index": 0, "finish_reason": piece.reason or None, **text}])
            if usage:
                event([], usage=_usage(asked, count))
            self._chunk("data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # the client has disconnected
            asked.cancelled = True
            self.close_connection = True
        except RuntimeError as error:
            self._chunk("data: " + json.dumps({"error": {"message": str(error), "code": 500}}) + "\n\n")
            self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _whole(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _pieces(asked: OpenVinoRequest, text: OpenVinoText, stops: list[str]) -> Iterator[OpenVinoPiece]:
    """Yields text; holds back text that may be the start of a stop string."""
    count, waiting, most = 0, "", max(map(len, stops), default=1) - 1
    for ids in asked:
        count += len(ids)
        waiting += text.add(ids)
        found = [at for stop in stops if (at := waiting.find(stop)) >= 0]
        if found:
            asked.cancelled = True
            yield OpenVinoPiece(waiting[: min(found)], count, "stop")
            return
        ready = len(waiting) - most
        if ready > 0:
            yield OpenVinoPiece(waiting[:ready], count, "")
            waiting = waiting[ready:]
    reason = "length" if count >= asked.config.max_new_tokens else "stop"
    yield OpenVinoPiece(waiting + text.add([], last=True), count, reason)


def _schema(given: Any) -> Any:
    if not given or given.get("type") == "text":
        return None
    if given.get("type") == "json_object":
        return {"type": "object"}
    if given.get("type") == "json_schema":
        return given["json_schema"]["schema"]
    raise BadRequestError(f"response_format {given.get('type')!r} is not supported")


def _usage(asked: OpenVinoRequest, count: int) -> dict[str, int]:
    prompt = len(asked.ids)
    return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}


class OpenVinoServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True)
    for name in ("port", "threads", "sequences", "context", "cache-gb"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--batch-tokens", type=int, default=256)
    given = parser.parse_args()
    OpenVinoHandler.engine = OpenVinoEngine(given.model, given.threads, given.sequences, given.cache_gb,
                                            given.batch_tokens)
    OpenVinoHandler.name, OpenVinoHandler.context = given.name, given.context
    print(f"openvino_genai {genai.__version__}, serving {given.name}", file=sys.stderr, flush=True)
    OpenVinoServer(("127.0.0.1", given.port), OpenVinoHandler).serve_forever()


if __name__ == "__main__":
    main()

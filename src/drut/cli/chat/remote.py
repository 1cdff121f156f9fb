"""A model behind a URL, for a chat: OpenAI's streaming API, over the HTTP client of `drut bench`."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from drut.bench.exchange import RefusedError, ToolExchange
from drut.bench.sse import Event
from drut.cli.chat.conversation import AnswerPart
from drut.cli.chat.interrupt import Interrupt
from drut.engine.request.output import Completion
from drut.engine.request.params import SamplingParams
from drut.errors import DrutError, RequestError
from drut.parse.deltas import Content, Reasoning

SILENCE_S = 600.0  # maximum seconds between two reads of a stream, or for a whole reply; Drut's server sends comments
PLAIN = SamplingParams()
FIELDS = ("max_tokens", "temperature", "top_p", "stop", "seed", "top_k", "min_p", "min_tokens", "repetition_penalty",
          "presence_penalty", "frequency_penalty")  # sent if they differ from the default


class RemoteError(DrutError):
    """The server cannot be reached, refuses, or sends an invalid reply. `status`: the reply's status, if any."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class RemoteModel:
    """The interface of a model for a chat, over a server's API.

    If the server cannot count tokens (`/tokenize`), no turn is removed here, and its refusals are shown.
    """

    def __init__(self, url: str, model: str | None = None, api_key: str | None = None) -> None:
        """`url`: the server's address, with or without `/v1`. `model`: its served name; None: the first in the list.

        Raises RequestError for an invalid URL, RemoteError if the server does not answer.
        """
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._exchange = ToolExchange(url if "//" in url else f"http://{url}", headers, SILENCE_S, name=url)
        except RequestError as error:
            raise RequestError(f"--url {url}: {error}") from None
        self.url = url
        self.name = model if model is not None else self._first_model()
        self.room: int | None = None  # known once `encode_chat` has counted

    def encode_chat(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        """Returns the token ids of a conversation; an empty list if the server cannot count them."""
        try:
            reply = self._json("/tokenize", {"model": self.name, "messages": list(messages)})
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
               params: SamplingParams, interrupt: Interrupt) -> Generator[AnswerPart, None, None]:
        """Yields the answer as it comes; empty parts while nothing comes."""
        body = {"model": self.name, "messages": list(messages), "stream": True,
                "stream_options": {"include_usage": True}}
        body |= {name: getattr(params, name) for name in FIELDS if getattr(params, name) != getattr(PLAIN, name)}
        started = time.monotonic()
        with _remote(self.url), self._exchange.stream("/v1/chat/completions", body) as events:
            for part in _parts(events, started):
                yield part
                if interrupt.wanted:
                    break

    def names(self) -> list[str]:
        """Returns the names of the served models."""
        try:
            return [str(model["id"]) for model in self._json("/v1/models")["data"]]
        except (KeyError, TypeError):
            raise RemoteError(f"{self.url} lists no model: name one with --model") from None

    def _first_model(self) -> str:
        if names := self.names():
            return names[0]
        raise RemoteError(f"{self.url} lists no model: name one with --model")

    def _json(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        with _remote(self.url):
            status, data = self._exchange.send(path, body)
        if status != http.client.OK:
            raise _refusal(self.url, status, data)
        try:
            reply = json.loads(data)
        except (ValueError, RecursionError):
            raise RemoteError(f"{self.url}{path} does not answer in JSON") from None
        if not isinstance(reply, dict):
            raise RemoteError(f"{self.url}{path} does not answer with a JSON object")
        return reply


@contextlib.contextmanager
def _remote(url: str) -> Iterator[None]:
    """Turns errors of the exchange into RemoteError."""
    try:
        yield
    except RefusedError as error:
        raise _refusal(url, error.status, error.data) from None
    except RequestError as error:
        raise RemoteError(str(error)) from None


def _parts(events: Iterator[Event | None], started: float) -> Generator[AnswerPart, None, None]:
    """Yields parts from server-sent events; the last one has the completion."""
    text: list[str] = []
    reason: str | None = None
    usage: dict[str, Any] = {}
    first: float | None = None
    for event in events:
        if event is None:
            yield AnswerPart([])
            continue
        if event.data == b"[DONE]":
            break
        deltas, ended, counted = _event(event.data)
        reason, usage = ended or reason, counted or usage
        if deltas:
            first = time.monotonic() if first is None else first
            text += [delta.text for delta in deltas if isinstance(delta, Content)]
            yield AnswerPart(deltas)
    if reason is None:
        raise RemoteError("the stream ended before the answer was complete")
    yield AnswerPart([], _completion("".join(text), reason, usage, started, first))


def _event(data: bytes) -> tuple[list[Content | Reasoning], str | None, dict[str, Any]]:
    """Returns deltas, finish reason and usage of an event. Raises RemoteError for an error event or an invalid one."""
    try:
        event = json.loads(data)
        if "error" in event:
            raise RemoteError(str(event["error"]["message"]))
        usage = event.get("usage")
        choice = event["choices"][0] if event["choices"] else {}
        delta = choice.get("delta") or {}
        thought, text = (delta.get("reasoning_content") or delta.get("reasoning")), delta.get("content")
        deltas = [*([Reasoning(str(thought))] if thought else ()), *([Content(str(text))] if text else ())]
        reason = choice.get("finish_reason")
        return deltas, None if reason is None else str(reason), usage if isinstance(usage, dict) else {}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise RemoteError("the stream has an invalid event") from None


def _completion(text: str, reason: str, usage: Mapping[str, Any], started: float, first: float | None) -> Completion:
    """Returns the completion; its timings are measured here, from sending the request on."""
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, output = (n if isinstance(n, int) and n >= 0 else 0 for n in counts)
    timings, now = {}, time.monotonic()
    if first is not None:
        timings["ttft_s"] = first - started
        timings["decode_tokens_per_s"] = (output - 1) / (now - first) if output > 1 and now > first else 0.0
    return Completion(text=text, token_ids=[], finish_reason=reason, prompt_tokens=prompt, cached_tokens=0,
                      completion_tokens=output, seed=0, timings=timings)


def _refusal(url: str, status: int, data: bytes) -> RemoteError:
    message = http.client.responses.get(status, "")
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        message = str(json.loads(data)["error"]["message"])
    return RemoteError(f"{url} answers {status}: {message}", status)

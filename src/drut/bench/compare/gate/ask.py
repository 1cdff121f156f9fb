"""Sends greedy requests to an engine in its own format, and texts to score."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from drut.bench.compare.gate.likelihood import TOP, ScoredText
from drut.bench.engines.engine import Launch
from drut.bench.exchange import ToolExchange
from drut.bench.load.chunk import UsageFields, broken_finish, decode
from drut.errors import RequestError

_COMPLETIONS = "/v1/completions"
_NONSENSE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Question(msgspec.Struct, frozen=True):
    """A request. `exact`: exactly `max_tokens` tokens are wanted. `body` holds further fields of the request."""

    text: str
    max_tokens: int
    exact: bool = False
    body: dict[str, Any] = {}


class EngineAnswer(msgspec.Struct, frozen=True):
    """An answer, or the status and text of an error. Token counts are the engine's own."""

    status: int
    text: str
    finish: str | None = None
    prompt_tokens: int | None = None
    tokens: int | None = None


class _AskedLogprobs(msgspec.Struct):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _ScoredChoice(msgspec.Struct):
    logprobs: _AskedLogprobs | None = None


class _ScoredReply(msgspec.Struct):
    choices: list[_ScoredChoice] = []
    usage: UsageFields | None = None


class Asker:
    """Sends requests to the engine of a launch, as chats or completions."""

    def __init__(self, launch: Launch, chat: bool, timeout_s: float) -> None:
        self._launch, self._chat, self._timeout_s = launch, chat, timeout_s
        self._path = "/v1/chat/completions" if chat else _COMPLETIONS

    def ask(self, questions: list[Question], together: int = 1) -> list[EngineAnswer]:
        """Returns the answers, in order; `together` requests run at a time. Raises RequestError if the engine does not
        answer."""
        if together == 1:
            exchange = self._exchange()
            try:
                return [self._one(exchange, question) for question in questions]
            finally:
                exchange.close()
        with ThreadPoolExecutor(together) as pool:
            return list(pool.map(self._alone, questions))

    def score(self, texts: list[str]) -> list[ScoredText]:
        """Returns the likelihood of the tokens of each text: by a completion that repeats its prompt (`echo`) with
        logprobs. Returns an empty list if the engine does not support that. Raises RequestError if it does not
        answer."""
        exchange, found = self._exchange(), list[ScoredText]()
        try:
            for text in texts:
                body = {"model": self._launch.model, "prompt": text, "max_tokens": 1, "temperature": 0, "echo": True,
                        "logprobs": TOP, "stream": False, **self._launch.body}
                status, data = exchange.send(_COMPLETIONS, body)
                scored = _scored(text, data) if status == 200 else None
                if scored is None:
                    return []
                found.append(scored)
        finally:
            exchange.close()
        return found

    def _alone(self, question: Question) -> EngineAnswer:
        exchange = self._exchange()
        try:
            return self._one(exchange, question)
        finally:
            exchange.close()

    def _exchange(self) -> ToolExchange:
        return ToolExchange(self._launch.url, timeout_s=self._timeout_s)

    def _one(self, exchange: ToolExchange, question: Question) -> EngineAnswer:
        status, data = exchange.send(self._path, self.body(question))
        if status != 200:
            return EngineAnswer(status, data[:500].decode(errors="replace"))
        try:
            reply = decode(data)
            choice = (reply.choices or [])[0]
        except (*_NONSENSE, IndexError) as error:
            raise RequestError(f"{exchange.name}: {self._path} sent an invalid reply: {error}") from None
        if reply.is_error or broken_finish(choice.finish_reason):
            raise RequestError(f"{exchange.name}: {self._path} ended with finish_reason {choice.finish_reason!r}"
                               if not reply.is_error else f"{exchange.name}: {data[:200].decode(errors='replace')}")
        text = choice.message.content if choice.message else choice.text
        usage = reply.usage or UsageFields()
        return EngineAnswer(status, text or "", choice.finish_reason, usage.prompt_tokens, usage.completion_tokens)

    def body(self, question: Question) -> dict[str, Any]:
        """Returns the request in the format of the engine."""
        launch = self._launch
        body: dict[str, Any] = {"model": launch.model, "max_tokens": question.max_tokens, "temperature": 0,
                                "stream": False, **launch.body, **question.body}
        if question.exact:
            body |= ({"min_tokens": question.max_tokens, "ignore_eos": True} if launch.exact is None
                     else launch.exact)
        if self._chat:
            return {**body, "messages": [{"role": "user", "content": question.text}]}
        return {**body, "prompt": question.text}


def _scored(text: str, data: bytes) -> ScoredText | None:
    """Parses the scores in a reply; None if it has no scores of the prompt: engines without `echo` ignore the field."""
    try:
        reply = msgspec.json.decode(data, type=_ScoredReply)
    except _NONSENSE:
        return None
    logprobs = reply.choices[0].logprobs if reply.choices else None
    if logprobs is None or not logprobs.tokens or not logprobs.token_logprobs:
        return None
    drawn = 1 if reply.usage is None or reply.usage.completion_tokens is None else reply.usage.completion_tokens
    end = max(len(logprobs.tokens) - drawn, 0)
    tokens, values = logprobs.tokens[:end], logprobs.token_logprobs[:end]
    top = [*(logprobs.top_logprobs or [])[:end], *[None] * end][:end]
    if len(values) < end or text.strip() not in "".join(tokens):
        return None
    kept = [(t, v, p or {}) for t, v, p in zip(tokens, values, top, strict=True) if v is not None]
    return ScoredText([t for t, _, _ in kept], [v for _, v, _ in kept], [p for _, _, p in kept]) if kept else None

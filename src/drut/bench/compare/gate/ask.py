"""Greedy questions to an engine, in its own words."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from drut.bench.engines.engine import Launch
from drut.bench.exchange import Exchange
from drut.errors import RequestError


class Question(msgspec.Struct, frozen=True):
    """`exact`: just `max_tokens` tokens are wanted. `body` holds further fields of the request."""

    text: str
    max_tokens: int
    exact: bool = False
    body: dict[str, Any] = {}


class Said(msgspec.Struct, frozen=True):
    """An answer, or the status and the words of a refusal. Token counts are the engine's own."""

    status: int
    text: str
    finish: str | None = None
    prompt_tokens: int | None = None
    tokens: int | None = None


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class Asker:
    """Asks the engine that a launch started, by chats or by completions."""

    def __init__(self, launch: Launch, chat: bool, timeout_s: float) -> None:
        self._launch, self._chat, self._timeout_s = launch, chat, timeout_s
        self._path = "/v1/chat/completions" if chat else "/v1/completions"

    def ask(self, questions: list[Question], together: int = 1) -> list[Said]:
        """Each answer, in order; so many at a time. Raises RequestError where the engine gives none."""
        if together == 1:
            exchange = self._exchange()
            try:
                return [self._one(exchange, question) for question in questions]
            finally:
                exchange.close()
        with ThreadPoolExecutor(together) as pool:
            return list(pool.map(self._alone, questions))

    def _alone(self, question: Question) -> Said:
        exchange = self._exchange()
        try:
            return self._one(exchange, question)
        finally:
            exchange.close()

    def _exchange(self) -> Exchange:
        return Exchange(self._launch.url, timeout_s=self._timeout_s)

    def _one(self, exchange: Exchange, question: Question) -> Said:
        status, data = exchange.send(self._path, self.body(question))
        if status != 200:
            return Said(status, data[:500].decode(errors="replace"))
        try:
            reply = msgspec.json.decode(data, type=_Reply)
            choice = reply.choices[0]
        except (msgspec.MsgspecError, RecursionError, IndexError, UnicodeDecodeError) as error:
            raise RequestError(f"{exchange.name}: {self._path} answered nonsense: {error}") from None
        text = choice.message.content if choice.message else choice.text
        usage = reply.usage or _Usage()
        return Said(status, text or "", choice.finish_reason, usage.prompt_tokens, usage.completion_tokens)

    def body(self, question: Question) -> dict[str, Any]:
        """The request, as the engine wants to be asked."""
        launch = self._launch
        body: dict[str, Any] = {"model": launch.model, "max_tokens": question.max_tokens, "temperature": 0,
                                "stream": False, **launch.body, **question.body}
        if question.exact:
            body |= ({"min_tokens": question.max_tokens, "ignore_eos": True} if launch.exact is None
                     else launch.exact)
        if self._chat:
            return {**body, "messages": [{"role": "user", "content": question.text}]}
        return {**body, "prompt": question.text}

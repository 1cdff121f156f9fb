"""What is asked before a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from drut.bench.exchange import ToolExchange
from drut.bench.load.client import Target
from drut.bench.load.prime import prime
from drut.bench.work import ConversationTurn
from drut.errors import RequestError
from tests.bench.scripted import Request, ScriptedServer

TURNS = [ConversationTurn([{"role": "user", "content": "a"}], max_tokens=64, exact=True),
         ConversationTurn(prompt=[1, 2], max_tokens=64)]


async def well(request: Request) -> None:
    await request.json({"choices": []})


async def refuse(request: Request) -> None:
    await request.json({"error": "too long"}, 400)


def test_each_is_asked_for_a_token_in_order() -> None:
    with ScriptedServer(well) as server:
        prime(Target(f"{server.url}/v1", "m", body={"temperature": 0}, exact={"logit_bias": {"2": -100}}), TURNS)
    common = {"model": "m", "max_tokens": 1, "temperature": 0, "stream": False}
    assert [(request.path, request.body) for request in server.requests] == [
        ("/v1/chat/completions", {**common, "messages": TURNS[0].messages}),
        ("/v1/completions", {**common, "prompt": [1, 2]})]


def test_what_is_refused_is_left_to_the_load() -> None:
    with ScriptedServer(refuse) as server:
        prime(Target(server.url, "m"), TURNS)
    assert len(server.requests) == 2


def test_a_server_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def send(self: ToolExchange, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        asked.append(path)
        raise RequestError("no reply within 1 s")

    monkeypatch.setattr(ToolExchange, "send", send)
    prime(Target("http://127.0.0.1:9", "m"), TURNS)
    assert asked == ["/v1/chat/completions"]

"""Requests before a load, one by one, so that a prefix cache holds the shared prefixes of the load's prompts."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

import msgspec

from drut.bench.exchange import ToolExchange
from drut.bench.load.client import Target
from drut.bench.work import ConversationTurn
from drut.errors import RequestError


def prime(target: Target, turns: Iterable[ConversationTurn], tls: ssl.SSLContext | None = None) -> None:
    """Sends each turn with a limit of one token and waits for its end. Skips a turn that the server refuses, and stops
    if the server does not respond: the load that follows reports that failure."""
    exchange = ToolExchange(target.url, target.headers, target.timeout_s, tls, endpoint=target.endpoint)
    try:
        for turn in turns:
            short = msgspec.structs.replace(turn, max_tokens=1, exact=False)
            path = "/v1/chat/completions" if turn.prompt is None else "/v1/completions"
            exchange.send(path, {**target.asked(short), "stream": False})
    except RequestError:
        return
    finally:
        exchange.close()

"""Requests before a load, one by one, so that a prefix cache holds what the prompts of the load share."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

import msgspec

from drut.bench.exchange import Exchange
from drut.bench.load.client import Target
from drut.bench.work import Turn
from drut.errors import RequestError


def prime(target: Target, turns: Iterable[Turn], tls: ssl.SSLContext | None = None) -> None:
    """Each is answered with a token and waited for. What a server refuses is left out, and after one that it does not
    answer at all no other is sent: the load that follows tells of such a server."""
    exchange = Exchange(target.url, target.headers, target.timeout_s, tls, endpoint=target.endpoint)
    try:
        for turn in turns:
            short = msgspec.structs.replace(turn, max_tokens=1, exact=False)
            path = "/v1/chat/completions" if turn.prompt is None else "/v1/completions"
            exchange.send(path, {**target.asked(short), "stream": False})
    except RequestError:
        return
    finally:
        exchange.close()

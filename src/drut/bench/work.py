"""What a workload hands to the load generator: sessions of turns, nothing of how or when they are sent."""

from __future__ import annotations

from typing import Any

import msgspec

from drut.errors import RequestError

OWN_FIELDS = ("model", "stream", "stream_options", "messages", "prompt")
Message = dict[str, Any]  # as in the `messages` of a chat request


class Turn(msgspec.Struct, frozen=True):
    """One request of a session.

    A chat turn adds `messages` to those of the turns before it and to what was answered there. A completion has a
    `prompt` and no messages. `input_tokens` is the whole prompt's length by the target's tokenizer, the chat template
    not counted; None where it is not known beforehand. `body` holds further fields of the request (tools,
    response_format, ...).
    """

    messages: list[Message] = []
    prompt: str | list[int] | None = None
    max_tokens: int = 128
    exact: bool = False  # the answer is to have exactly `max_tokens` tokens (min_tokens and ignore_eos are sent)
    input_tokens: int | None = None
    think_s: float = 0.0  # from the end of the turn before to when this one is due
    body: dict[str, Any] = {}


class Session(msgspec.Struct, frozen=True):
    """Turns of one user, in order. `replies[i]`, where given, stands for what turn i was answered; otherwise the
    server's own answer goes into the next turn's prompt."""

    id: str
    turns: list[Turn]
    replies: list[list[Message]] | None = None
    at_s: float | None = None  # when a trace says that it arrives, in seconds from the trace's start, stretched already


def check_body(name: str, body: dict[str, Any]) -> None:
    """Of further fields of a request. Raises RequestError, which begins with `name`."""
    for field in OWN_FIELDS:
        if field in body:
            raise RequestError(f"{name} must not set {field}, which the client does itself")
    if body.get("n", 1) not in (1, None):
        raise RequestError(f"{name} must not ask for more than one answer (n), whose pieces would be told as one")

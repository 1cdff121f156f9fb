"""The interface of workloads and load generator: sessions of turns, independent of when and how they are sent."""

from __future__ import annotations

from typing import Any

import msgspec

from drut.errors import RequestError

OWN_FIELDS = ("model", "stream", "stream_options", "messages", "prompt")
Message = dict[str, Any]  # as in the `messages` of a chat request


class ConversationTurn(msgspec.Struct, frozen=True):
    """One request of a session.

    A chat turn appends `messages` to those of the previous turns and their replies. A completion has a `prompt` and no
    messages. `input_tokens` is the length of the whole prompt by the target's tokenizer, without the chat template;
    None if it is unknown beforehand. `body` holds further fields of the request (tools, response_format, ...).
    """

    messages: list[Message] = []
    prompt: str | list[int] | None = None
    max_tokens: int = 128
    exact: bool = False  # the response has exactly `max_tokens` tokens (the request sends min_tokens and ignore_eos)
    input_tokens: int | None = None
    think_s: float = 0.0  # from the end of the previous turn to the time at which this one is due
    body: dict[str, Any] = {}


class Session(msgspec.Struct, frozen=True):
    """The turns of one user, in order. `replies[i]`, if given, replaces the reply to turn i; otherwise the server's own
    reply becomes part of the next turn's prompt."""

    id: str
    turns: list[ConversationTurn]
    replies: list[list[Message]] | None = None
    at_s: float | None = None  # arrival time by a trace, in seconds from its start, already scaled


def check_body(name: str, body: dict[str, Any]) -> None:
    """Checks further fields of a request. Raises RequestError, which begins with `name`."""
    for field in OWN_FIELDS:
        if field in body:
            raise RequestError(f"{name} must not set {field}, which the client does itself")
    if body.get("n", 1) not in (1, None):
        raise RequestError(f"{name} must not ask for more than one choice (n): their pieces would be counted as one")

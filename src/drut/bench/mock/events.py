"""The events of a streamed response: their due times and bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from drut.bench.mock.ask import MockAsk
from drut.bench.mock.reply import Reply
from drut.bench.mock.script import Script


class Item(NamedTuple):
    """An item to send. `data` is None if the connection is to be cut."""

    due_s: float  # from the start of service
    tokens: int  # of the response, sent with this item or before
    data: bytes | None


_WORDS = [f" t{i}" for i in range(1000)]


def text(start: int, end: int) -> str:
    """Returns tokens `start` to `end` - 1 as text: one word each, as the mock's tokenizer counts."""
    if end - start == 1:
        return _WORDS[start % len(_WORDS)]
    return "".join(_WORDS[i % len(_WORDS)] for i in range(start, end))


def usage(ask: MockAsk, reply: Reply, script: Script, tokens: int) -> dict[str, Any]:
    """Returns the usage of a response after `tokens` tokens."""
    numbers: dict[str, Any] = {"prompt_tokens": ask.prompt_tokens, "completion_tokens": tokens,
                               "total_tokens": ask.prompt_tokens + tokens}
    if script.cached_share is not None:
        numbers["prompt_tokens_details"] = {"cached_tokens": reply.cached_tokens}
    return numbers


class EventForm:
    """Encodes the events of one request. The parts that are the same for every token are encoded once."""

    def __init__(self, script: Script, ask: MockAsk, reply: Reply) -> None:
        self.script, self.ask, self.reply, self.chat = script, ask, reply, ask.chat
        self.end = b"\r\n\r\n" if script.stream.crlf else b"\n\n"
        kind, name = ("chat.completion.chunk", "chatcmpl") if ask.chat else ("text_completion", "cmpl")
        head = {"id": f"{name}-{reply.request}", "object": kind, "created": int(time.time()), "model": script.model}
        self.head = b"data: " + json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"choices":['
        self.choice = self.head + (b'{"index":0,"delta":{' if ask.chat else b'{"index":0,')
        self.between = b"}" if ask.chat else b""
        silent = script.usage in ("never", "not_streamed")
        self.final_usage = not silent and (ask.include_usage or script.usage == "always")
        self.counting = not silent and (ask.continuous_usage or script.stream.continuous_usage)
        self.plain = self.between + b',"logprobs":null,"finish_reason":null}]}' + self.end

    def event(self, delta: bytes, tokens: int, finish: str | None = None) -> bytes:
        """Returns a chunk with the fields of `delta`."""
        if finish is None and not self.counting:
            return self.choice + delta + self.plain
        ending = b',"logprobs":null,"finish_reason":' + (f'"{finish}"' if finish else "null").encode() + b"}]"
        if self.counting:
            ending += b',"usage":' + self._usage(tokens)
        return self.choice + delta + self.between + ending + b"}" + self.end

    def tokens(self, start: int, end: int, finish: str | None) -> bytes:
        """Returns a chunk with the text of some tokens, which are all reasoning or all content."""
        words = text(start, end)
        if not self.chat:
            return self.event(f'"text":"{words}"'.encode(), end, finish)
        stream = self.script.stream
        if start < stream.reasoning_tokens:
            return self.event(f'"{stream.reasoning_field}":"{words}"'.encode(), end, finish)
        if stream.tool_call:
            return self.event(self._call(words, start == stream.reasoning_tokens), end, finish)
        return self.event(f'"content":"{words}"'.encode(), end, finish)

    def empty(self, tokens: int, finish: str | None = None) -> bytes:
        """Returns a chunk without text."""
        return self.event(b'"content":""' if self.chat else b'"text":""', tokens, finish)

    def role(self) -> bytes:
        """Returns the chunk that holds only the role."""
        return self.event(b'"role":"assistant","content":""', 0)

    def usage_only(self, tokens: int) -> bytes:
        """Returns the last chunk, which has usage and no choice."""
        return self.head + b'],"usage":' + self._usage(tokens) + b"}" + self.end

    def line(self, payload: bytes) -> bytes:
        """Returns any other event."""
        return payload + self.end

    def _usage(self, tokens: int) -> bytes:
        return json.dumps(usage(self.ask, self.reply, self.script, tokens), separators=(",", ":")).encode()

    def _call(self, words: str, first: bool) -> bytes:
        call: dict[str, Any] = {"index": 0, "function": {"arguments": words}}
        if first:
            call |= {"id": f"call-{self.reply.request}", "type": "function"}
            call["function"] = {"name": "mock", "arguments": words}
        return b'"tool_calls":[' + json.dumps(call, separators=(",", ":")).encode() + b"]"


ERROR = b'data: {"error":{"message":"scripted error","type":"server_error","code":500}}'


def events(script: Script, ask: MockAsk, reply: Reply) -> Iterator[Item]:
    """Yields all events of a response in order of their due times."""
    form, stream, sent = EventForm(script, ask, reply), script.stream, reply.sent_tokens
    if ask.chat and stream.role_chunk:
        yield Item(0.0, 0, form.role())
    yield from _token_events(form, reply, sent)
    last = reply.service_s
    if reply.fault:
        if reply.fault.kind == "cut":
            yield Item(last, sent, None)
            return
        yield Item(last, sent, form.line(ERROR))
    else:
        if stream.finish_apart:
            yield Item(last, sent, form.empty(sent, reply.finish_reason))
        if form.final_usage:
            yield Item(last, sent, form.usage_only(sent))
    if stream.done:
        yield Item(last + stream.done_delay_ms / 1e3, sent, form.line(b"data: [DONE]"))


def _token_events(form: EventForm, reply: Reply, sent: int) -> Iterator[Item]:
    """Yields the first token alone, then bundles, each due with its last token."""
    stream, times = form.script.stream, reply.times
    start, chunk, before = 0, 0, 0.0
    while start < sent:
        end = min(start + stream.bundle, sent) if start else 1
        if start < stream.reasoning_tokens < end:
            end = stream.reasoning_tokens
        due, chunk = times[end - 1], chunk + 1
        if stream.empty_every and chunk % stream.empty_every == 0:
            yield Item((before + due) / 2, start, form.empty(start))
        last = end == reply.tokens and not stream.finish_apart and reply.fault is None
        yield Item(due, end, form.tokens(start, end, reply.finish_reason if last else None))
        start, before = end, due

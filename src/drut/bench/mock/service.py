"""Serves requests: slots, the queue before them, and the times of writes."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Protocol

import msgspec

from drut.bench.alarm import Alarm
from drut.bench.mock.ask import MockAsk
from drut.bench.mock.events import Item, events, text, usage
from drut.bench.mock.measures import Measures
from drut.bench.mock.reply import Reply, plan_reply
from drut.bench.mock.script import Script
from drut.bench.mock.writes import writes

MAX_RECORDS = 1_000_000
MAX_AT_ONCE = 1 << 16  # maximum of bytes that one stream writes before other streams are served


class Served(msgspec.Struct, frozen=True, gc=False):
    """The result of a request. Times are seconds of this machine's monotonic clock, 0 for steps that the request did
    not reach."""

    request: int  # its number, from 0
    arrived_s: float  # the complete request was read
    started_s: float  # the request got a slot
    due_first_s: float  # due time of the first token by the script
    first_s: float  # time at which the first token was passed to the system
    last_s: float  # the same of the last token
    ended_s: float
    prompt_tokens: int
    tokens: int  # tokens of the response that were sent
    outcome: str  # ok, error, cut; gone if the client disconnected


class MockClient(Protocol):
    """The connection of a request."""

    paused: bool  # its buffers are full

    def send_answer(self, data: bytes) -> None:
        """Sends a part of a streamed response; the first call sends the head, too."""

    def send_whole(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Sends a complete response."""

    def end_answer(self) -> None:
        """Completes the streamed response."""

    def cut(self) -> None:
        """Ends the connection at once."""


class MockService:
    """One request in service."""

    __slots__ = ("_items", "_next", "arrived", "ask", "client", "dead", "desk", "first", "last", "reply", "stamps",
                 "start", "tokens")

    def __init__(self, desk: Desk, client: MockClient, ask: MockAsk, reply: Reply, arrived: float) -> None:
        self.desk, self.client, self.ask, self.reply, self.arrived = desk, client, ask, reply, arrived
        self.start = self.first = self.last = 0.0
        self.tokens, self.dead = 0, False
        self.stamps: list[float] = []  # times of writes with tokens
        self._items: Iterator[Item] = iter(())
        self._next: Item | None = None

    def begin(self, at: float) -> float:
        """Starts the service. Returns the time of the first write."""
        self.start = at
        script, ask = self.desk.script, self.ask
        self._items = writes(events(script, ask, self.reply), script.stream) if ask.stream else self._whole()
        self._next = next(self._items)
        return at + self._next.due_s

    def fire(self) -> float | None:
        """Writes everything that is due. Returns the next due time, or None at the end."""
        if self.dead or self.client.paused:
            return None
        item, tokens, parts, size = self._next, self.tokens, [], 0
        elapsed = time.monotonic() - self.start
        while item is not None and item.due_s <= elapsed and item.data is not None and size < MAX_AT_ONCE:
            parts.append(item.data)
            size += len(item.data)
            tokens = item.tokens
            item = next(self._items, None)
        self._next = item
        if self.ask.stream and parts:
            self.client.send_answer(parts[0] if len(parts) == 1 else b"".join(parts))
        if tokens > self.tokens:
            self._note(tokens)
        if item is None:
            self._end(parts)
        elif item.data is None and item.due_s <= elapsed:
            self.close("cut")
            self.client.cut()
        else:
            return self.start + item.due_s
        return None

    def close(self, outcome: str) -> None:
        """Ends the service and records the result."""
        if not self.dead:
            self.dead = True
            self.desk.closed(self, outcome)

    def _note(self, tokens: int) -> None:
        now = time.monotonic()
        if not self.tokens:
            self.first = now
        self.tokens, self.last = tokens, now
        self.stamps.append(now)
        if tokens == self.reply.tokens:
            self.desk.release(self)

    def _end(self, parts: list[bytes]) -> None:
        fault = self.reply.fault
        self.close("error" if fault else "ok")
        if self.ask.stream:
            self.client.end_answer()
        else:
            self.client.send_whole(500 if fault else 200, b"".join(parts))

    def _whole(self) -> Iterator[Item]:
        """Yields a response that is not streamed."""
        reply, ask, script = self.reply, self.ask, self.desk.script
        if reply.fault:
            data = None if reply.fault.kind == "cut" else error_body("scripted error", 500)
            yield Item(reply.service_s, reply.sent_tokens, data)
            return
        yield Item(reply.service_s, reply.tokens, _answer(script, ask, reply))


class Desk:
    """Takes requests, gives them slots in order of arrival, and records results."""

    def __init__(self, script: Script, alarm: Alarm) -> None:
        self.script, self._alarm = script, alarm
        self._line: deque[MockService] = deque()
        self._holders: set[MockService] = set()
        self.reset()

    def reset(self) -> None:
        """Resets counters and request numbers."""
        self._count = 0
        self.records: deque[Served] = deque(maxlen=MAX_RECORDS)
        self.measures = Measures(self.script.model, self)

    @property
    def running(self) -> int:
        """Returns the number of requests that hold a slot."""
        return len(self._holders)

    @property
    def waiting(self) -> int:
        """Returns the number of requests that wait for a slot."""
        return sum(not service.dead for service in self._line)

    @property
    def use(self) -> float:
        """Returns the share of the slots in use; 0 if there is no limit."""
        return self.running / self.script.slots if self.script.slots else 0.0

    def arrive(self, client: MockClient, ask: MockAsk) -> MockService:
        """Takes a request that was read completely."""
        arrived = time.monotonic()
        reply = plan_reply(self.script, ask, self._count)
        self._count += 1
        service = MockService(self, client, ask, reply, arrived)
        if reply.fault and reply.fault.kind == "status":
            service.close("error")
            client.send_whole(reply.fault.status, error_body("scripted status", reply.fault.status))
        elif self._free():
            self._holders.add(service)
            service.begin(arrived)
            self.resume(service)
        else:
            self._line.append(service)
        return service

    def resume(self, service: MockService) -> None:
        """Writes what is due, and schedules the rest."""
        due = service.fire()
        if due is not None:
            self._alarm.at(due, service.fire)

    def release(self, service: MockService) -> None:
        """Frees a slot: the first request in the queue takes it at the time given by the script, even if this call is
        late."""
        if service not in self._holders:
            return
        self._holders.discard(service)
        now = time.monotonic()
        freed = now if service.dead else min(service.start + service.reply.service_s, now)
        while self._line and self._free():
            waiting = self._line.popleft()
            if not waiting.dead:
                self._holders.add(waiting)
                self._alarm.at(waiting.begin(max(freed, waiting.arrived)), waiting.fire)

    def closed(self, service: MockService, outcome: str) -> None:
        """Records the end of a request."""
        self.release(service)
        reply, start = service.reply, service.start
        due_first = start + reply.times[0] if start else 0.0
        self.records.append(Served(request=reply.request, arrived_s=service.arrived, started_s=start,
                                   due_first_s=due_first, first_s=service.first, last_s=service.last,
                                   ended_s=time.monotonic(), prompt_tokens=service.ask.prompt_tokens,
                                   tokens=service.tokens, outcome=outcome))
        if outcome == "ok":
            self._measure(service)

    def _free(self) -> bool:
        return self.script.slots is None or len(self._holders) < self.script.slots

    def _measure(self, service: MockService) -> None:
        reply, measures, tokens = service.reply, self.measures, service.tokens
        measures.add("request_success")
        measures.add("prompt_tokens", service.ask.prompt_tokens)
        measures.add("generation_tokens", tokens)
        measures.add("prefix_cache_queries", service.ask.prompt_tokens)
        measures.add("prefix_cache_hits", reply.cached_tokens)
        measures.observe("e2e_request_latency_seconds", [service.last - service.arrived])
        measures.observe("request_queue_time_seconds", [service.start - service.arrived])
        if service.ask.stream:
            measures.observe("time_to_first_token_seconds", [service.first - service.arrived])
            measures.observe("inter_token_latency_seconds", [b - a for a, b in pairwise(service.stamps)])
            if tokens > 1:
                each = (service.last - service.first) / (tokens - 1)
                measures.observe("request_time_per_output_token_seconds", [each])


def error_body(message: str, code: int) -> bytes:
    """Returns an error in OpenAI's format."""
    return json.dumps({"error": {"message": message, "type": "mock_error", "code": code}}).encode()


def _answer(script: Script, ask: MockAsk, reply: Reply) -> bytes:
    stream, words = script.stream, text(0, reply.tokens)
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reply.finish_reason}
    if ask.chat:
        split = min(stream.reasoning_tokens, reply.tokens)
        message: dict[str, Any] = {"role": "assistant", "content": text(split, reply.tokens)}
        if split:
            message[stream.reasoning_field] = text(0, split)
        if stream.tool_call:
            function = {"name": "mock", "arguments": message["content"]}
            message["content"] = None
            message["tool_calls"] = [{"id": f"call-{reply.request}", "type": "function", "function": function}]
        choice["message"] = message
    else:
        choice["text"] = words
    kind, name = ("chat.completion", "chatcmpl") if ask.chat else ("text_completion", "cmpl")
    body = {"id": f"{name}-{reply.request}", "object": kind, "created": int(time.time()), "model": script.model,
            "choices": [choice]}
    if script.usage != "never":
        body["usage"] = usage(ask, reply, script, reply.tokens)
    return msgspec.json.encode(body)

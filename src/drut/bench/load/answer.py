"""Reads an answer as it arrives: of each piece its text, the tokens it stands for, and what the server tells."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from drut.bench.load.record import Failure, Record
from drut.bench.load.sse import SseSplitter, TooLongError

MOST_BODY = 64 << 20  # bytes of an answer that is not streamed, and of a stream
MOST_DETAIL = 200  # characters of a server's words that are kept
MOST_QUEUE_S = 1e6

_Count = Annotated[int, Meta(ge=0, lt=1 << 31)]  # what is no number of tokens is refused with the answer


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Logprobs(msgspec.Struct, gc=False):
    content: list[msgspec.Raw] | None = None  # of a chat
    tokens: list[msgspec.Raw] | None = None  # of a completion


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Metrics(msgspec.Struct, gc=False):  # vLLM, --enable-per-request-metrics
    queue_time_ms: Annotated[float, Meta(ge=0, le=MOST_QUEUE_S * 1000)] | None = None


class _Why(msgspec.Struct, gc=False):
    queued_s: Annotated[float, Meta(ge=0, le=MOST_QUEUE_S)] | None = None  # Drut


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    metrics: _Metrics | None = None
    why: _Why | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


class Answer:
    """Fills the fields of a Record that the answer tells, and holds its words."""

    __slots__ = ("_body", "_calls", "_pieces", "_read", "_running", "_told", "done", "record", "splitter")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.splitter: SseSplitter | None = None  # of an answer that is streamed
        self.done = False  # [DONE] has come
        self._body: list[bytes] = []
        self._read = 0
        self._told = 0  # completion tokens by the usage last seen
        self._running = False  # usage comes before the end too
        self._pieces: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def head(self, status: int, content_type: bytes, queue_ms: bytes | None) -> None:
        """The response's head is here. `queue_ms` is what TGI tells in x-queue-time."""
        self.record.status = status
        if status == 200 and content_type.lower().startswith(b"text/event-stream"):
            self.splitter = SseSplitter()
            self.record.streamed = True
        if queue_ms is not None and queue_ms.isdigit() and len(queue_ms) <= 9:  # else MOST_QUEUE_S is passed
            self.record.queue_s = int(queue_ms) / 1000

    def body(self, data: bytes, now: float) -> bool:
        """Bytes of the body that arrived at `now`. False: the answer cannot be read on, and `record` says why."""
        self._read += len(data)
        if self._read > MOST_BODY:
            return self.fail("malformed", f"the answer is longer than {MOST_BODY} bytes")
        if self.splitter is None:
            self._body.append(data)
            return True
        try:
            events = self.splitter.feed(data)
        except TooLongError as error:
            return self.fail("malformed", str(error))
        for event in events:
            if event == b"[DONE]":
                self.done = True
            elif not self._event(event, now):
                return False
        return True

    def end(self, now: float) -> None:
        """The response is complete."""
        record = self.record
        if record.failure is not None:
            return
        if record.status != 200:
            self.fail("http", f"status {record.status}: {_words(b''.join(self._body))}")
        elif self.splitter is None and not self._event(b"".join(self._body), now):
            return
        elif not record.arrivals:
            self._without_text(now)

    @property
    def complete(self) -> bool:
        """Whether the answer said that it is at its end: so a connection that closes then cuts nothing."""
        return self.done or self.record.finish_reason is not None

    def fail(self, kind: Failure, detail: str) -> bool:
        """Notes the failure, if it is the first. False, always."""
        if self.record.failure is None:
            self.record.failure = kind
            self.record.detail = "".join(c if c.isprintable() else " " for c in detail[:MOST_DETAIL])
        return False

    def text(self) -> str:
        """All words of the answer: content, reasoning, and the arguments of calls."""
        return "".join(self._pieces)

    def message(self) -> dict[str, Any]:
        """The answer as the message of a later turn, without its reasoning."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._pieces)}
        if self._calls:
            message["tool_calls"] = [self._calls[i] for i in sorted(self._calls)]
        return message

    def _event(self, event: bytes, now: float) -> bool:
        try:
            chunk = _decode(event)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return self.fail("malformed", f"{error}: {_words(event)}")
        if chunk.error is not None:
            return self.fail("server", _words(event))
        record = self.record
        if chunk.usage is not None and not self._may_be(chunk.usage):
            return False
        told = -1 if chunk.usage is None else self._usage(chunk.usage)
        if chunk.metrics is not None and chunk.metrics.queue_time_ms is not None:
            record.queue_s = chunk.metrics.queue_time_ms / 1000
        if chunk.why is not None:
            record.queue_s = chunk.why.queued_s
        if not chunk.choices:
            return True
        choice = chunk.choices[0]
        if choice.finish_reason is not None:
            record.finish_reason = choice.finish_reason
        elif told >= 0:
            self._running = True
        chars = self._words_of(choice)
        ids = _ids(choice)
        if ids >= 0:
            told = ids
        elif not self._running:
            told = -1  # the usage of the whole answer, not of this piece
        # An end-of-sequence token has no text: the piece that says `stop` is its arrival.
        stopped = choice.finish_reason == "stop" and told < 0 and record.streamed and record.arrivals
        if chars or told > 0 or stopped:
            self._arrive(now, chars, told)
        return True

    def _arrive(self, now: float, chars: int, told: int) -> None:
        record = self.record
        if record.arrivals and record.arrivals[-1] == now:  # of the same read
            record.chars[-1] += chars
            if told > 0:
                record.told[-1] = told + max(record.told[-1], 0)
        else:
            record.arrivals.append(now)
            record.chars.append(chars)
            record.told.append(told)

    def _may_be(self, usage: _Usage) -> bool:
        """Whether it can be true. A token that was neither shown nor asked for cannot have been made; one that was
        shown took a byte at least."""
        most = max(self._read, self.record.max_tokens)
        if (usage.completion_tokens or 0) <= most:
            return True
        return self.fail("malformed", f"{usage.completion_tokens} completion tokens in an answer of {self._read} bytes")

    def _usage(self, usage: _Usage) -> int:
        """Keeps it. Gives the tokens that came since the usage before, -1 where that cannot be told."""
        record = self.record
        if usage.prompt_tokens is not None:
            record.input_tokens = usage.prompt_tokens
        if usage.prompt_tokens_details is not None:
            cached = usage.prompt_tokens_details.cached_tokens
            whole = cached is None or record.input_tokens is None or cached <= record.input_tokens
            record.cached_tokens = cached if whole else None  # more than there were is no number of them
        if usage.completion_tokens is None:
            return -1
        more, self._told = usage.completion_tokens - self._told, usage.completion_tokens
        record.output_tokens = usage.completion_tokens
        return max(more, -1)

    def _words_of(self, choice: _Choice) -> int:
        """Characters of output in it; a call counts by its name and arguments."""
        if choice.text is not None:
            return self._keep(choice.text)
        delta = choice.delta or choice.message
        if delta is None:
            return 0
        chars = 0
        if delta.content:
            chars += self._keep(delta.content)
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            chars += len(reasoning)
        if delta.refusal:
            chars += self._keep(delta.refusal)
        for call in delta.tool_calls or ():
            chars += self._call(call)
        return chars

    def _keep(self, text: str) -> int:
        self._pieces.append(text)
        return len(text)

    def _call(self, call: _ToolCall) -> int:
        index = call.index if call.index is not None else len(self._calls)
        whole = self._calls.setdefault(
            index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        if call.id:
            whole["id"] = call.id
        if call.function is None:
            return 0
        name, arguments = call.function.name or "", call.function.arguments or ""
        whole["function"]["name"] += name
        whole["function"]["arguments"] += arguments
        return len(name) + len(arguments)

    def _without_text(self, now: float) -> None:
        """An answer may be its end-of-sequence token alone; one with tokens that were never shown is a failure."""
        tokens = self.record.output_tokens
        if self.record.finish_reason is not None and tokens is not None and tokens <= 1:
            self._arrive(now, 0, -1)
        else:
            self.fail("empty", "the answer had no text" + (f", though {tokens} tokens" if tokens else ""))


def _ids(choice: _Choice) -> int:
    if choice.token_ids is not None:
        return len(choice.token_ids)
    logprobs = choice.logprobs
    if logprobs is None:
        return -1
    tokens = logprobs.content if logprobs.content is not None else logprobs.tokens
    return -1 if tokens is None else len(tokens)


def _words(data: bytes) -> str:
    """Of a body, for a person: one line, bounded."""
    text = data[: 4 * MOST_DETAIL].decode(errors="replace")
    return " ".join(text.split())[:MOST_DETAIL]

"""Reads a response as it arrives: its text, tokens and times, piece by piece, and whether it is valid."""

from __future__ import annotations

from typing import Any

import msgspec

from drut.bench.load.chunk import (
    ChunkChoiceFields,
    ChunkFields,
    ToolCallFields,
    UsageFields,
    broken_finish,
    decode,
    tokens_of,
)
from drut.bench.load.record import Failure, LoadRecord
from drut.bench.sse import Event, SseSplitter, TooLongError

MAX_BODY = 64 << 20  # bytes of a response, streamed or not
MAX_DETAIL = 200  # characters of a server's error text that are kept

class StreamedAnswer:
    """Fills a Record from a response, and holds the response's text. `stream`: the request asked for a stream."""

    __slots__ = (
        "_body",
        "_calls",
        "_pieces",
        "_read",
        "_reported",
        "_running",
        "_stream",
        "_type",
        "done",
        "record",
        "splitter",
    )

    def __init__(self, record: LoadRecord, stream: bool = True) -> None:
        self.record = record
        self._stream = stream
        self._type = ""
        self.splitter: SseSplitter | None = None  # only for a streamed response
        self.done = False  # [DONE] has arrived
        self._body: list[bytes] = []
        self._read = 0
        self._reported = 0  # completion tokens by the latest usage
        self._running = False  # the server also sends usage before the end
        self._pieces: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def head(self, status: int, content_type: bytes, queue_ms: bytes | None) -> None:
        """Processes the head of the response. `queue_ms` is TGI's header x-queue-time."""
        self.record.status = status
        self._type = content_type.decode("latin-1")
        if status == 200 and content_type.lower().startswith(b"text/event-stream"):
            self.splitter = SseSplitter()
            self.record.streamed = True
        if queue_ms is not None and queue_ms.isdigit() and len(queue_ms) <= 9:  # more digits exceed MAX_QUEUE_S
            self.record.queue_s = int(queue_ms) / 1000

    def body(self, data: bytes, now: float) -> bool:
        """Processes bytes of the body that arrived at `now`. Returns False if the response cannot be read further;
        `record` has the reason."""
        self._read += len(data)
        if self._read > MAX_BODY:
            return self.fail("malformed", f"the response is longer than {MAX_BODY} bytes")
        if self.splitter is None:
            self._body.append(data)
            return True
        try:
            events = self.splitter.feed(data)
        except TooLongError as error:
            return self.fail("malformed", str(error))
        return all(self._event(event, now) for event in events)

    def end(self, now: float) -> None:
        """Processes the end of the response."""
        record = self.record
        if record.failure is not None:
            return
        if record.status != 200:
            self.fail("http", f"status {record.status}: {_words(b''.join(self._body))}")
        elif self.splitter is None and not self._whole(b"".join(self._body), now):
            return
        elif record.finish_reason is None:
            self.fail("cut", f"the {'response' if self.splitter is None else 'stream'} ended without finish_reason")
        else:
            self._without_zeros()
            if not record.arrivals:
                self._without_text(now)

    @property
    def complete(self) -> bool:
        """Returns whether the server announced the end of the response. If so, a connection that closes afterwards
        loses nothing."""
        return self.done or self.record.finish_reason is not None

    def fail(self, kind: Failure, detail: str) -> bool:
        """Records the failure if it is the first one. Always returns False."""
        if self.record.failure is None:
            self.record.failure = kind
            self.record.detail = "".join(c if c.isprintable() else " " for c in detail[:MAX_DETAIL])
        return False

    def text(self) -> str:
        """Returns all text of the response: content, reasoning, and the arguments of tool calls."""
        return "".join(self._pieces)

    def message(self) -> dict[str, Any]:
        """Returns the response as an assistant message for a later turn, without its reasoning."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._pieces)}
        if self._calls:
            message["tool_calls"] = [self._calls[i] for i in sorted(self._calls)]
        return message

    def _event(self, event: Event, now: float) -> bool:
        """Reads an event of a stream. An empty event keeps the connection alive; events after [DONE] do not belong to
        the response."""
        data = event.data.strip()
        if self.done or not data:
            return True
        if event.name.lower() == b"error":
            return self.fail("server", _words(data))
        if data == b"[DONE]":
            self.done = True
            return True
        return self._part(data, now, named=event.name not in (b"", b"message"))

    def _whole(self, body: bytes, now: float) -> bool:
        """Reads a response that is not streamed."""
        if not body.strip():
            return self.fail("empty", "status 200 and an empty body")
        if not self._part(body, now):
            return False
        if self._stream:
            return self.fail("malformed", f"a stream was requested, but the response is {self._type or 'of no type'}: "
                             "--no-stream measures responses without streaming")
        return True

    def _part(self, data: bytes, now: float, named: bool = False) -> bool:
        """Reads one chunk of a response; an event with a `named` type of its own need not be a chunk."""
        try:
            chunk = decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            where = "" if self.splitter is not None else f"{self._type}: "
            return self.fail("malformed", f"{where}{error}: {_words(data)}")
        if chunk.is_error or not (chunk.is_part or named):
            return self.fail("server", _words(data))
        return self._take(chunk, now)

    def _take(self, chunk: ChunkFields, now: float) -> bool:
        record = self.record
        if chunk.usage is not None and not self._may_be(chunk.usage):
            return False
        reported = -1 if chunk.usage is None else self._usage(chunk.usage)
        if chunk.metrics is not None and chunk.metrics.queue_time_ms is not None:
            record.queue_s = chunk.metrics.queue_time_ms / 1000
        if chunk.why is not None:
            record.queue_s = chunk.why.queued_s
        if not chunk.choices:
            return True
        choice = chunk.choices[0]
        if len(chunk.choices) > 1 or choice.index:
            return self.fail("malformed", "more than one choice, but one was requested")
        if broken_finish(choice.finish_reason):
            record.finish_reason = choice.finish_reason
            return self.fail("server", f"finish_reason {choice.finish_reason!r}")
        chars = self._words_of(choice)
        if record.finish_reason is not None:
            return not chars or self.fail("malformed", "output after finish_reason")
        if choice.finish_reason:
            record.finish_reason = choice.finish_reason
        elif reported >= 0:
            self._running = True
        ids = tokens_of(choice)
        if ids >= 0:
            reported = ids
        elif not self._running:
            reported = -1  # the usage covers the whole response, not this piece
        # An end-of-sequence token has no text: it arrives with the piece whose finish reason is `stop`.
        stopped = choice.finish_reason == "stop" and reported < 0 and record.streamed and record.arrivals
        if chars or reported > 0 or stopped:
            self._arrive(now, chars, reported)
        return True

    def _arrive(self, now: float, chars: int, reported: int) -> None:
        record = self.record
        if record.arrivals and record.arrivals[-1] == now:  # from the same read
            record.chars[-1] += chars
            if reported > 0:
                record.reported[-1] = reported + max(record.reported[-1], 0)
        else:
            record.arrivals.append(now)
            record.chars.append(chars)
            record.reported.append(reported)

    def _may_be(self, usage: UsageFields) -> bool:
        """Checks that a usage is possible: a token that was neither shown nor requested cannot exist, and a token that
        was shown took at least one byte."""
        most = max(self._read, self.record.max_tokens)
        if (usage.completion_tokens or 0) <= most:
            return True
        return self.fail("malformed", f"{usage.completion_tokens} completion tokens in a reply of {self._read} bytes")

    def _usage(self, usage: UsageFields) -> int:
        """Stores the usage. Returns the number of tokens since the previous usage, or -1 if it is unknown."""
        record = self.record
        if usage.prompt_tokens is not None:
            record.input_tokens = usage.prompt_tokens
        if usage.prompt_tokens_details is not None:
            cached = usage.prompt_tokens_details.cached_tokens
            whole = cached is None or record.input_tokens is None or cached <= record.input_tokens
            record.cached_tokens = cached if whole else None  # a number above that of all input tokens is invalid
        if usage.completion_tokens is None:
            return -1
        more, self._reported = usage.completion_tokens - self._reported, usage.completion_tokens
        record.output_tokens = usage.completion_tokens
        return max(more, -1)

    def _words_of(self, choice: ChunkChoiceFields) -> int:
        """Returns the number of characters of output in a choice; a tool call counts by its name and arguments."""
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
        if delta.function_call is not None:
            chars += self._call(ToolCallFields(index=0, function=delta.function_call))
        return chars

    def _keep(self, text: str) -> int:
        self._pieces.append(text)
        return len(text)

    def _call(self, call: ToolCallFields) -> int:
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

    def _without_zeros(self) -> None:
        """Drops a usage of 0 tokens, which some servers send in place of none."""
        record = self.record
        if record.input_tokens == 0:
            record.input_tokens = None
        if record.output_tokens == 0 and record.arrivals:
            record.output_tokens = None
            if max(record.reported) <= 0:
                record.reported = [-1] * len(record.reported)

    def _without_text(self, now: float) -> None:
        """Handles a response without text: it may be a single end-of-sequence token; a response with tokens that were
        never shown is a failure."""
        tokens = self.record.output_tokens
        if self.record.finish_reason is not None and tokens is not None and tokens <= 1:
            self._arrive(now, 0, -1)
        else:
            self.fail("empty", "the response had no text" + (f", though {tokens} tokens" if tokens else ""))


def _words(data: bytes) -> str:
    """Returns the text of a body on one line, shortened, for an error text."""
    text = data[: 4 * MAX_DETAIL].decode(errors="replace")
    return " ".join(text.split())[:MAX_DETAIL]

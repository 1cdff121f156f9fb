"""The user's own requests, one JSON object per line."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec

from drut.bench.work import ConversationTurn, Message, Session, check_body
from drut.bench.workloads.workload import Workload, WorkloadContext
from drut.config import setting
from drut.errors import RequestError

MAX_LINE_BYTES = 16 << 20
MAX_FILE_BYTES = 1 << 30
MAX_ROWS = 1_000_000
MAX_DEPTH = 64  # of nested objects and lists; far below the depth that overflows a parser's stack
_DEFAULT_MAX_TOKENS = 128


class JsonlEntry(msgspec.Struct, rename={"sender": "from"}):
    """A message of a conversation as ShareGPT has it."""

    sender: Literal["system", "human", "user", "gpt", "assistant"]
    value: str


class JsonlRow(msgspec.Struct, forbid_unknown_fields=True):
    """One line. `output_tokens`: the answer has exactly so many. `body` holds further fields of the request; `id` is
    ignored."""

    prompt: str | list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]] | None = None
    messages: Annotated[list[Message], msgspec.Meta(min_length=1)] | None = None
    conversations: Annotated[list[JsonlEntry], msgspec.Meta(min_length=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None
    output_tokens: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None
    exact: bool = False
    at_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    body: dict[str, Any] = {}
    id: str | int | None = None


@dataclass(frozen=True)
class OwnFile(Workload):
    name = "jsonl"
    help = ("your own file, in its order: one JSON object per line with prompt (text or token ids), messages, or "
            f"conversations (as ShareGPT has them), and optionally max_tokens ({_DEFAULT_MAX_TOKENS}) or output_tokens "
            "(exactly so many), at_s (seconds from the start, in all lines or none) and body (further fields of the "
            "request)")

    path: str | None = setting(None, "the file; a comma in its name cannot be written here")
    repeat: bool = setting(True, "start again after the last line (never with at_s)", type=bool)
    stretch: float = setting(1.0, "factor on at_s: 2 is half the speed", type=float, least=1e-6, most=1e6)

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        if not self.path:
            raise RequestError(f"workload {self.name!r} needs a file: {self.name}:path=FILE")
        rows = read_rows(Path(self.path).expanduser())
        made = [_session(context, row, f"{self.path}, line {line}") for line, row in rows]
        times = [row.at_s for _, row in rows]
        timed = times[0] is not None
        for (line, row), before in zip(rows[1:], times, strict=False):
            if (row.at_s is not None) != timed:
                raise RequestError(f"{self.path}, line {line}: at_s must be in all lines or in none")
            if timed and row.at_s < before:  # type: ignore[operator]
                raise RequestError(f"{self.path}, line {line}: at_s {row.at_s:g} is earlier than the line before")
        context.facts |= {"rows": len(rows), "repeats": self.repeat and not timed, "stretch": self.stretch}

        def make() -> Iterator[Session]:
            round_number = 0
            while round_number == 0 or (self.repeat and not timed):
                for i, ((turns, replies), at_s) in enumerate(zip(made, times, strict=True)):
                    yield Session(f"{self.name}-{round_number}-line-{rows[i][0]}", turns, replies,
                                  at_s=None if at_s is None else at_s * self.stretch)
                round_number += 1

        return make()


def _session(context: WorkloadContext, row: JsonlRow,
             where: str) -> tuple[list[ConversationTurn], list[list[Message]] | None]:
    """Returns the turns of a line, and the recorded replies of a conversation. Raises RequestError, which begins with
    `where`."""
    if sum(given is not None for given in (row.prompt, row.messages, row.conversations)) != 1:
        raise RequestError(f"{where}: exactly one of prompt, messages and conversations is required")
    if row.max_tokens is not None and row.output_tokens is not None:
        raise RequestError(f"{where}: max_tokens and output_tokens exclude each other")
    if depth((row.messages, row.body)) > MAX_DEPTH:
        raise RequestError(f"{where}: nested deeper than {MAX_DEPTH}")
    check_body(f"{where}: body", row.body)
    if row.prompt is None and not context.chat:
        raise RequestError(f"{where}: {'messages' if row.messages else 'conversations'} need the chat endpoint")
    if row.conversations is not None:
        return _conversation(context, row, row.conversations, where)
    most = row.output_tokens or row.max_tokens or _DEFAULT_MAX_TOKENS
    exact = row.exact or row.output_tokens is not None
    if row.messages is not None:
        return [ConversationTurn(row.messages, None, most, exact, body=row.body)], None
    if isinstance(row.prompt, list):
        if context.chat:
            raise RequestError(f"{where}: token ids need the completions endpoint")
        return [ConversationTurn([], row.prompt, most, exact, len(row.prompt), body=row.body)], None
    return [msgspec.structs.replace(context.ask(row.prompt or "", most, exact=exact), body=row.body)], None


def _conversation(context: WorkloadContext, row: JsonlRow, entries: list[JsonlEntry],
                  where: str) -> tuple[list[ConversationTurn], list[list[Message]]]:
    """Returns a turn for each message of the user, with the recorded replies as history. Without a limit in the line,
    an answer may be as long as the recorded one, if a tokenizer on this machine can count that."""
    turns: list[ConversationTurn] = []
    replies: list[list[Message]] = []
    asked: list[Message] = []
    fixed = row.output_tokens or row.max_tokens
    count = context.tokenizer.count if context.tokenizer and not context.tokenizer.remote else None

    def turn(most: int) -> None:
        turns.append(ConversationTurn(asked.copy(), None, most, row.exact or row.output_tokens is not None,
                                      body=row.body))
        asked.clear()

    for entry in entries:
        if entry.sender in ("gpt", "assistant"):
            if any(message["role"] == "user" for message in asked):  # some conversations begin with an answer
                turn(fixed or (max(1, count(entry.value)) if count else _DEFAULT_MAX_TOKENS))
                replies.append([{"role": "assistant", "content": entry.value}])
        else:
            asked.append({"role": "system" if entry.sender == "system" else "user", "content": entry.value})
    if any(message["role"] == "user" for message in asked):
        turn(fixed or _DEFAULT_MAX_TOKENS)
        replies.append([])
    if not turns:
        raise RequestError(f"{where}: conversations has no message of a user")
    return turns, replies


def read_rows(path: Path) -> list[tuple[int, JsonlRow]]:
    """Returns the lines of a file with their numbers; skips empty lines.

    Raises RequestError with the file and the line: no such file, no lines, above the limits, or an invalid row.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise RequestError(f"{path}: not a regular file")
            if status.st_size > MAX_FILE_BYTES:
                raise RequestError(f"{path}: longer than {MAX_FILE_BYTES} bytes")
            rows = list(_rows(file, path))
    except (OSError, ValueError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not rows:
        raise RequestError(f"{path}: no line with a request")
    return rows


def _rows(file: BinaryIO, path: Path) -> Iterator[tuple[int, JsonlRow]]:
    decoder = msgspec.json.Decoder(JsonlRow)
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise RequestError(f"{path}, line {number}: longer than {MAX_LINE_BYTES} bytes")
        if number > MAX_ROWS:
            raise RequestError(f"{path}: more than {MAX_ROWS} lines")
        if not line.strip():
            continue
        if number == 1 and line.lstrip().startswith(b"["):
            raise RequestError(f"{path}, line 1: a JSON array; one object per line is needed: "
                               f"jq -c '.[]' {path} > lines.jsonl")
        try:
            yield number, decoder.decode(line)
        except RecursionError:
            raise RequestError(f"{path}, line {number}: nested too deeply") from None
        except msgspec.MsgspecError as error:
            raise RequestError(f"{path}, line {number}: {error}") from None
        except UnicodeDecodeError:
            raise RequestError(f"{path}, line {number}: not UTF-8") from None


def depth(value: object) -> int:
    """Returns the depth of nested objects and lists."""
    level, deepest = [value], 0
    while level := [v for v in level if isinstance(v, dict | list | tuple)]:
        deepest += 1
        level = [inner for v in level for inner in (v.values() if isinstance(v, dict) else v)]
    return deepest

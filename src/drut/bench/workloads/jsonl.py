"""The user's own requests, one JSON object per line."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

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


class JsonlRow(msgspec.Struct, forbid_unknown_fields=True):
    """One line. `body` holds further fields of the request."""

    prompt: str | list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]] | None = None
    messages: Annotated[list[Message], msgspec.Meta(min_length=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = _DEFAULT_MAX_TOKENS
    exact: bool = False
    at_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    body: dict[str, Any] = {}


@dataclass(frozen=True)
class OwnFile(Workload):
    name = "jsonl"
    help = ("your own file, in its order: one JSON object per line with prompt (text or token ids) or messages, and "
            f"optionally max_tokens ({_DEFAULT_MAX_TOKENS}), exact (false; answers of exactly max_tokens), at_s "
            "(seconds from the start, in all lines or none) and body (further fields of the request)")

    path: str | None = setting(None, "the file; a comma in its name cannot be written here")
    repeat: bool = setting(True, "start again after the last line (never with at_s)", type=bool)
    stretch: float = setting(1.0, "factor on at_s: 2 is half the speed", type=float, least=1e-6, most=1e6)

    def sessions(self, context: WorkloadContext) -> Iterator[Session]:
        if not self.path:
            raise RequestError(f"workload {self.name!r} needs a file: {self.name}:path=FILE")
        rows = read_rows(Path(self.path).expanduser())
        turns = [self._turn(context, row, f"{self.path}, line {line}") for line, row in rows]
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
                for i, (turn, at_s) in enumerate(zip(turns, times, strict=True)):
                    yield Session(f"{self.name}-{round_number}-line-{rows[i][0]}", [turn],
                                  at_s=None if at_s is None else at_s * self.stretch)
                round_number += 1

        return make()

    def _turn(self, context: WorkloadContext, row: JsonlRow, where: str) -> ConversationTurn:
        if (row.prompt is None) == (row.messages is None):
            raise RequestError(f"{where}: exactly one of prompt and messages is required")
        if depth((row.messages, row.body)) > MAX_DEPTH:
            raise RequestError(f"{where}: nested deeper than {MAX_DEPTH}")
        check_body(f"{where}: body", row.body)
        if row.messages is not None:
            if not context.chat:
                raise RequestError(f"{where}: messages need the chat endpoint")
            return ConversationTurn(row.messages, None, row.max_tokens, row.exact, body=row.body)
        if isinstance(row.prompt, list):
            if context.chat:
                raise RequestError(f"{where}: token ids need the completions endpoint")
            return ConversationTurn([], row.prompt, row.max_tokens, row.exact, len(row.prompt), body=row.body)
        turn = context.ask(row.prompt or "", row.max_tokens, exact=row.exact)
        return msgspec.structs.replace(turn, body=row.body)


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

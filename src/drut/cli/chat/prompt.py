"""The input line of a chat: editing, history, completion, messages of several lines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import is_done
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import TabsProcessor

from drut.cli.terminal import note

PROMPT, CONTINUED = ">>> ", "... "
QUOTES = '"""'
KEPT_CHARACTERS = 100_000  # longer messages are not kept in the history


@dataclass(frozen=True)
class Typed:
    """What a person typed. `quoted`: it was in triple quotes, and so is no command."""

    text: str
    quoted: bool = False


class MessageHistory(FileHistory):
    """Messages in a file that only this user may read. If it cannot be written, messages are not kept."""

    def store_string(self, string: str) -> None:
        if len(string) <= KEPT_CHARACTERS:
            with contextlib.suppress(OSError):
                super().store_string(string)


def history(file: Path) -> History:
    """Returns the history in `file`, which is created; one in memory if that fails."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return MessageHistory(str(file))


class ChatPrompt:
    """Reads messages at a terminal. A pasted text of several lines is one message, sent by Enter."""

    def __init__(self, completer: Completer, kept: History) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=kept, completer=completer, complete_while_typing=False, complete_in_thread=True,
            multiline=True, input_processors=[TabsProcessor(char1=" ", char2=" ")], key_bindings=_keys(),
            prompt_continuation=_continuation, enable_suspend=True)

    def messages(self) -> Iterator[Typed]:
        """Yields messages and commands, to Ctrl-D or the second Ctrl-C in a row on an empty line."""
        leaving = False
        while True:
            try:
                text = self._session.prompt(PROMPT)
            except EOFError:
                return
            except KeyboardInterrupt:
                empty = not self._session.default_buffer.text
                if empty and leaving:
                    return
                leaving = empty
                if empty:
                    note("Ctrl-C again, Ctrl-D or /bye leaves")
                continue
            leaving = False
            try:
                text.encode()
            except UnicodeEncodeError:
                note("error: the message is not UTF-8 text")
                continue
            yield unquoted(text)


def unquoted(text: str) -> Typed:
    """Returns a message without its triple quotes."""
    bare = text.strip()
    if not bare.startswith(QUOTES):
        return Typed(text.rstrip("\n"))
    inner = bare.removeprefix(QUOTES).removesuffix(QUOTES)
    return Typed(inner.removeprefix("\n").removesuffix("\n"), quoted=True)


def is_open(text: str) -> bool:
    """Returns whether `text` begins a message in triple quotes that does not end yet."""
    bare = text.strip()
    return bare.startswith(QUOTES) and not (bare.endswith(QUOTES) and len(bare) >= 2 * len(QUOTES))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=~is_done)
    @keys.add("c-j", filter=~is_done)  # Enter, if it was typed during an answer
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def newline(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


def _continuation(width: int, line_number: int, wrap_count: int) -> FormattedText:
    return FormattedText([("fg:ansibrightblack", CONTINUED if not wrap_count else " " * len(CONTINUED))])

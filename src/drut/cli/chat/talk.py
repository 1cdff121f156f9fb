"""The loop of a chat: reads messages and commands, and shows answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from drut.cli.chat.commands import banner, handle
from drut.cli.chat.models import Models
from drut.cli.chat.screens import PipeScreen
from drut.cli.chat.session import Chat
from drut.cli.chat.settings import ChatSettings
from drut.cli.terminal import note, on_terminal, one_line
from drut.errors import DrutError, RequestError
from drut.home import home


def talk(models: Models, settings: ChatSettings, *, system: str | None = None) -> None:
    """Chats with an open model until the end of the input or /bye. Through a pipe each line is a message, and the first
    error is raised; at a terminal errors are shown."""
    if on_terminal():
        _at_terminal(models, settings, system)
    else:
        chat = Chat(models, settings, PipeScreen(), system)
        for line in _piped_lines():
            if not handle(chat, line):
                break


def _at_terminal(models: Models, settings: ChatSettings, system: str | None) -> None:
    from drut.cli.chat.completion import CommandCompleter
    from drut.cli.chat.prompt import ChatPrompt, history
    from drut.cli.chat.terminal import TerminalScreen, unechoed

    with unechoed():
        chat = Chat(models, settings, TerminalScreen(), system)
        prompt = ChatPrompt(CommandCompleter(models), history(home() / "chat_history"))
        note(f"{banner(chat)}; /help lists the commands")
        for typed in prompt.messages():
            try:
                if typed.quoted:
                    chat.say(typed.text)
                elif not handle(chat, typed.text):
                    break
            except DrutError as error:
                note(f"error: {one_line(str(error))}")
            except KeyboardInterrupt:
                note("interrupted")


def _piped_lines() -> Iterator[str]:
    """Yields the lines of standard input unchanged."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise RequestError(f"line {number} of standard input is not UTF-8 text") from None

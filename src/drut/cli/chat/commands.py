"""The commands of a chat: lines that begin with a slash and a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from drut.cli.chat.saved import path_of
from drut.cli.chat.session import Chat
from drut.cli.chat.settings import NAMES, NONE, check_name
from drut.engine.request.params import MODEL_FIELDS
from drut.errors import RequestError, did_you_mean

SYSTEM = "system"  # a setting of the conversation, next to those of `settings.NAMES`


@dataclass(frozen=True)
class ChatCommand:
    """A command. `argument` as in the help, in brackets if it is optional; `run` gets it as text, perhaps empty."""

    name: str
    argument: str
    help: str
    run: Callable[[Chat, str], None]

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


def handle(chat: Chat, line: str) -> bool:
    """Runs a command or answers a message; returns False for a command that ends the chat. Raises DrutError."""
    command = re.fullmatch(r"/([a-z]+)(?:\s+(.*))?", line.strip(), re.DOTALL)
    if command is None:
        if line.strip():
            chat.say(line)
        return True
    name, argument = command[1], command[2] or ""
    if name in LEAVE:
        return False
    if name not in COMMANDS:
        near = did_you_mean(f"/{name}", [f"/{known}" for known in (*COMMANDS, *LEAVE)])
        raise RequestError(f"no command /{name}{near} (see /help)")
    if not argument and COMMANDS[name].argument.isalpha():
        raise RequestError(f"{COMMANDS[name].usage}: {COMMANDS[name].argument} is missing")
    COMMANDS[name].run(chat, argument)
    return True


def _help(chat: Chat, _: str) -> None:
    rows = [(command.usage, command.help) for command in COMMANDS.values()]
    rows += [(" ".join(f"/{name}" for name in LEAVE), "leave, as Ctrl-D does"),
             ('"""', 'begin a message of several lines, which ends with """'),
             ("Ctrl-C", "stop the answer; its text so far stays in the conversation")]
    width = max(len(usage) for usage, _ in rows)
    chat.screen.note("\n".join(f"{usage:{width}}  {text}" for usage, text in rows))


def _set(chat: Chat, text: str) -> None:
    name, _, value = text.partition(" ")
    if name == SYSTEM:
        _system(chat, value.strip())
    elif value.strip():
        chat.settings = chat.settings.with_text(name, value.strip())
    elif name:
        check_name(name)
        chat.screen.note(f"{name} {_shown(chat, name)}")
    else:
        width = max(map(len, (*NAMES, SYSTEM)))
        rows = [(name, _shown(chat, name)) for name in NAMES] + [(SYSTEM, chat.conversation.system or NONE)]
        chat.screen.note("\n".join(f"{name:{width}}  {value}" for name, value in rows))


def _shown(chat: Chat, name: str) -> str:
    text = chat.settings.text(name)
    return f"{text} (the model's default)" if text == NONE and name in MODEL_FIELDS else text


def _system(chat: Chat, text: str) -> None:
    if text:
        chat.instruct(None if text == NONE else text)
    else:
        chat.screen.note(f"{SYSTEM} {chat.conversation.system or NONE}")


def _model(chat: Chat, name: str) -> None:
    if name:
        chat.switch(name)
    chat.screen.note(banner(chat))


def _save(chat: Chat, text: str) -> None:
    chat.save(path_of(text))
    chat.screen.note(f"saved to {path_of(text)}")


def _load(chat: Chat, text: str) -> None:
    chat.load(path_of(text))
    turns = len(chat.conversation.turns)
    chat.screen.note(f"{turns} turn{'s' * (turns != 1)} loaded from {path_of(text)}")


def banner(chat: Chat) -> str:
    """Returns one line about the open model."""
    room = chat.models.talker.room
    return chat.models.name + (f", context of {room} tokens" if room is not None else "")


LEAVE = ("bye", "exit", "quit")
COMMANDS = {command.name: command for command in (
    ChatCommand("help", "", "this list", _help),
    ChatCommand("set", "[NAME VALUE]", f"change a setting; {NONE} unsets it; without NAME show all", _set),
    ChatCommand("system", "[TEXT]", f"set the system message; {NONE} removes it", _system),
    ChatCommand("retry", "", "answer the last message again", lambda chat, _: chat.retry()),
    ChatCommand("clear", "", "forget the conversation (the system message stays)", lambda chat, _: chat.clear()),
    ChatCommand("model", "[NAME]", "continue with another model", _model),
    ChatCommand("save", "FILE", "write conversation and settings to FILE, as JSON", _save),
    ChatCommand("load", "FILE", "continue the conversation of FILE, with its settings", _load),
)}

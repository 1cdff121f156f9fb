"""Tab completion of a chat's commands and their arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from drut.cli.chat.commands import COMMANDS, LEAVE, SYSTEM
from drut.cli.chat.models import Models
from drut.cli.chat.settings import NAMES, NONE, SWITCHES
from drut.errors import DrutError

_PATHS = ("save", "load")


class CommandCompleter(Completer):
    """Completes names of commands, settings, models and files; nothing in a message."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if not typed.startswith("/") or "\n" in typed:
            return
        command, space, argument = typed[1:].partition(" ")
        if not space:
            yield from _matches([*COMMANDS, *LEAVE], command)
        elif command in _PATHS:
            yield from self._files.get_completions(Document(argument), complete_event)
        elif command == "model":
            with contextlib.suppress(DrutError):
                yield from _matches(self._models.names(), argument)
        elif command == "set":
            name, space, value = argument.partition(" ")
            words = (SWITCHES.get(name, (NONE,)) if space else (*NAMES, SYSTEM))
            yield from _matches(words, value if space else name)


def _matches(words: Sequence[str], begun: str) -> Iterable[Completion]:
    return [Completion(word, -len(begun)) for word in words if word.startswith(begun)]

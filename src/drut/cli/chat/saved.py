"""A chat in a file: JSON with the messages, in OpenAI's form, and the settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from drut.cli.chat.conversation import Conversation
from drut.cli.chat.settings import ChatSettings
from drut.errors import RequestError
from drut.model.store.files import write_atomically

MAX_BYTES = 64 << 20


class SavedMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class SavedChat(msgspec.Struct, forbid_unknown_fields=True):
    """The file. `model` is the name of the model that answered last."""

    messages: list[SavedMessage]
    settings: dict[str, Any] = {}
    model: str = ""


def save(path: Path, conversation: Conversation, settings: ChatSettings, model: str) -> None:
    """Writes the file, in place of an old one. Raises RequestError with the path if that fails."""
    messages = [SavedMessage(**message) for message in conversation.messages()]  # type: ignore[arg-type]
    chat = SavedChat(messages, settings.values(), model)
    try:
        write_atomically(path, msgspec.json.format(msgspec.json.encode(chat), indent=2).decode() + "\n")
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror or error}") from None


def load(path: Path, settings: ChatSettings) -> tuple[Conversation, ChatSettings]:
    """Returns conversation and settings; what the file does not set is as in `settings`. Raises RequestError with the
    path for a file that cannot be read or is not valid."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise RequestError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
        chat = msgspec.json.decode(data, type=SavedChat)
        return _conversation(chat.messages), settings.with_values(chat.settings)
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, RecursionError, RequestError, TypeError) as error:
        raise RequestError(f"{path}: {error}") from None


def _conversation(messages: list[SavedMessage]) -> Conversation:
    """Returns the messages as turns. Raises RequestError if roles do not alternate."""
    system = messages[0].content if messages and messages[0].role == "system" else None
    rest = messages if system is None else messages[1:]
    if [message.role for message in rest] != ["user", "assistant"] * (len(rest) // 2):
        raise RequestError("after an optional system message, user and assistant must alternate and end with assistant")
    contents = [message.content for message in rest]
    return Conversation(system, list(zip(contents[::2], contents[1::2], strict=True)))


def path_of(text: str) -> Path:
    """Returns the path that a person typed; `~` is the home folder."""
    return Path(os.path.expanduser(text))

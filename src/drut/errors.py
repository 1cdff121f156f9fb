"""Errors that a user can cause or fix. Each has a message of one line; the CLI prints it and exits with 2."""

from __future__ import annotations

from collections.abc import Iterable

LEAST_PREFIX = 3  # characters of a name from which it is taken for the begin of a longer one


class DrutError(Exception):
    """The base of all errors whose message is sufficient for the user."""


class ModelFileError(DrutError):
    """A model file is missing, damaged or inconsistent. The message names file and item."""


class UnsupportedError(DrutError):
    """A known item is not supported: an architecture, a quantization, a tokenizer. The message names it."""


class RequestError(DrutError, ValueError):
    """A request is invalid: a bad sampling value, a prompt longer than the context. The message names the field.

    `field` is the field's path if the caller does not know it, such as `messages[1].content`.
    """

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class DownloadError(DrutError):
    """A model could not be fetched or failed its checksum."""


class EngineDeadError(DrutError):
    """The engine has ended, and with it all its requests."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns "; did you mean NEAREST?" for the end of an error, or nothing if no known name is near. A name that
    begins with `name` is nearer than one that looks like it."""
    import difflib

    words = list(known)
    if len(name.lstrip("-")) >= LEAST_PREFIX:
        for word in words:
            if word.lower().startswith(name.lower()):
                return f"; did you mean {word}?"
    by_form = {form: word for word in words for form in (word.lower(), word)}
    near = difflib.get_close_matches(name, by_form, 1) or difflib.get_close_matches(name.lower(), by_form, 1)
    return f"; did you mean {by_form[near[0]]}?" if near else ""

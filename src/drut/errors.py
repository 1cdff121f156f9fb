"""Errors a user can cause or fix. Each carries one line that names the thing; the CLI prints it and exits 2."""

from __future__ import annotations


class DrutError(Exception):
    """Base of all errors whose message alone tells the user what to do."""


class ModelFileError(DrutError):
    """A model file is missing, damaged or inconsistent. The message names file and item."""


class UnsupportedError(DrutError):
    """Something known but not supported: an architecture, a quantization, a tokenizer. The message names it."""


class RequestError(DrutError, ValueError):
    """A request is invalid: a bad sampling value, a prompt past the context. The message names the field.

    `field` is its path where that is more than the caller knows, as `messages[1].content`.
    """

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class DownloadError(DrutError):
    """A model could not be fetched or failed its checksum."""

"""Errors a user can cause or fix. Each carries one line that names the thing; the CLI prints it and exits 2."""

from __future__ import annotations


class DrutError(Exception):
    """Base of all errors whose message alone tells the user what to do."""


class ModelFileError(DrutError):
    """A model file is missing, damaged or inconsistent. The message names file and item."""


class UnsupportedError(DrutError):
    """Something known but not supported: an architecture, a quantization, a tokenizer. The message names it."""


class RequestError(DrutError, ValueError):
    """A request is invalid: a bad sampling value, a prompt past the context. The message names the field."""


class DownloadError(DrutError):
    """A model could not be fetched or failed its checksum."""

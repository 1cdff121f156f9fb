"""Errors as clients see them: in OpenAI's shape, without internals of the server."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from drut.errors import DrutError, EngineDeadError, RequestError, UnsupportedError
from drut.server.admission import DeadlineError, DrainingError, QueueFullError

log = logging.getLogger("drut.server")

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
INTERNAL = "the server failed to process this request"


class ErrorDetail(msgspec.Struct, frozen=True):
    """An error. `code` is for programs, `message` for people; `param` names the invalid field."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(msgspec.Struct, frozen=True):
    error: ErrorDetail


class ApiError(Exception):
    """A reply that is an error. `retry_after_s` becomes the header Retry-After, rounded up; `allow`: the methods that
    the path supports."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None,
                 retry_after_s: float | None = None, allow: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.retry_after_s = status, code, param, retry_after_s
        self.allow = allow

    @property
    def detail(self) -> ErrorReply:
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return ErrorReply(ErrorDetail(_clean(str(self)), kind, self.param, self.code))

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"allow", self.allow.encode())] if self.allow else []
        if self.retry_after_s is not None:
            headers.append((b"retry-after", str(max(1, math.ceil(self.retry_after_s))).encode()))
        return headers


def unsupported(path: str, hint: str = "") -> ApiError:
    """Returns the error for a field that is known but not supported, with its path."""
    text = f"{path} is not supported" + (f": {hint}" if hint else "")
    return ApiError(400, text, code="unsupported_parameter", param=path)


def not_among(path: str, value: str, allowed: Sequence[str]) -> ApiError:
    """Returns the error for an invalid value of an enum-like field, with the valid values."""
    return ApiError(400, f"{path} {value[:40]!r} is not supported: it must be one of {', '.join(allowed)}",
                    code="unsupported_parameter", param=path)


def too_long(prompt_tokens: int, room: int, field: str) -> ApiError:
    return ApiError(400, f"the prompt has {prompt_tokens} tokens; this server's context length of {room} tokens leaves "
                         "no room for output", code="context_length_exceeded", param=field)


def as_api_error(error: BaseException) -> ApiError:
    """Returns the reply to any exception. Errors that the client did not cause are logged and get a fixed text."""
    match error:
        case ApiError():
            return error
        case QueueFullError():
            return ApiError(429, str(error), code="queue_full",
                            retry_after_s=error.retry_after_s)
        case DrainingError():
            return ApiError(503, "the server is shutting down", code="shutting_down", retry_after_s=5)
        case DeadlineError():
            return ApiError(504, str(error), code="deadline_exceeded", param="deadline_s")
        case RequestError():
            return ApiError(400, str(error))
        case UnsupportedError():
            return ApiError(400, str(error), code="unsupported_parameter")
        case EngineDeadError():
            log.error("the engine has ended: %s", error)
            return ApiError(503, "the engine has ended", code="engine_dead")
        case DrutError():
            log.error("a request failed: %s", error)
            return ApiError(500, INTERNAL, code="internal_error")
        case RecursionError():
            return ApiError(400, "the JSON is nested too deeply", code="invalid_json")
    log.error("a request failed", exc_info=error)
    return ApiError(500, INTERNAL, code="internal_error")


def encode_error(error: ApiError) -> bytes:
    return msgspec.json.encode(error.detail)


def _clean(text: Any) -> str:
    """Returns text without lone surrogates, which UTF-8 cannot encode."""
    return str(text).encode("utf-8", "replace").decode()

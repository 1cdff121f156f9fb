"""The log of failed requests: one line each on standard error, without any of the client's text."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache

from drut.server.openai.protocol.chat import ChatRequest
from drut.server.openai.protocol.completions import CompletionRequest
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.protocol.fields import UNSUPPORTED
from drut.server.openai.protocol.forms import FormFields, form_of
from drut.server.openai.protocol.models import DetokenizeRequest, TokenizeRequest

BURST = 60  # lines that may be written at once
LINES_PER_S = 1.0  # in the long run: some 20 MB a day at most
# Codes whose messages have nothing of a client's but numbers, methods and host names.
OWN_WORDS = frozenset((
    "body_too_large", "context_length_exceeded", "deadline_exceeded", "engine_dead", "headers_too_large",
    "host_not_allowed", "internal_error", "invalid_api_key", "invalid_http", "loading", "method_not_allowed",
    "not_found", "preflight_refused", "queue_full", "reply_too_large", "shutting_down", "timeout",
    "too_many_connections", "unsupported_media_type"))
FORMS = (ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)
MAX_STEPS = 8  # of a path
STEP = re.compile(r"\.?([^.\[\]]+)|(\[\d{1,6}\])")
Write = Callable[[str], None]


class FailureLog:
    """Writes lines such as `400 POST /v1/completions invalid_request_error top_p, 1.2 ms, id 5f`.

    A flood of failures writes BURST lines, then LINES_PER_S; the next line is preceded by the number of those left out,
    by status. With `aborts` a request whose client has disconnected is a line too.
    """

    def __init__(self, write: Write | None, *, aborts: bool = False,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """`write` gets each line without its end; None for no log."""
        self._write, self._aborts, self._clock = write, aborts, clock
        self._tokens, self._since = float(BURST), clock()
        self._left_out: Counter[str] = Counter()

    def failed(self, error: ApiError, method: str = "-", route: str = "-", *, seconds: float | None = None,
               id: str = "") -> None:
        """Writes a request that got an error. `route`: the pattern of its path, not the path itself."""
        self._add(str(error.status), f"{method} {route} {reason(error)}", seconds, id)

    def aborted(self, method: str, route: str, *, seconds: float, id: str) -> None:
        """Writes a request whose client has disconnected."""
        if self._aborts:
            self._add("aborted", f"{method} {route}", seconds, id)

    def _add(self, status: str, text: str, seconds: float | None, id: str) -> None:
        if self._write is None:
            return
        now = self._clock()
        self._tokens, self._since = min(BURST, self._tokens + (now - self._since) * LINES_PER_S), now
        if self._tokens < 1:
            self._left_out[status] += 1
            return
        self._tokens -= 1
        if self._left_out:
            counts = ", ".join(f"{status} x {count}" for status, count in sorted(self._left_out.items()))
            self._write(f"{self._left_out.total()} failed requests are not listed: {counts}")
            self._left_out.clear()
        took = "" if seconds is None else f", {1e3 * seconds:.1f} ms"
        self._write(f"{status} {text}{took}{f', id {id}' if id else ''}")


def reason(error: ApiError) -> str:
    """Returns the code of an error, its message if that has no text of a client, and the path of the field."""
    code = error.code or error.detail.error.type
    if code in OWN_WORDS:
        return f"{code}: {error}"
    return f"{code} {known_path(error.param)}" if error.param else code


def known_path(path: str) -> str:
    """Returns the path of a field, with `?` for each name that requests do not have here."""
    known, made = known_names(), ""
    for step in list(STEP.finditer(path))[:MAX_STEPS]:
        made += step[2] or "." * bool(made) + (step[1] if step[1] in known else "?")
    return made


@cache
def known_names() -> frozenset[str]:
    """Returns the names of all fields, of structs at every depth and of those that are refused by name."""
    def names(form: FormFields) -> Iterator[str]:
        for name, inner in form.fields.items():
            yield name
            yield from names(inner)
        if form.items is not None:
            yield from names(form.items)

    refused = (step for path in UNSUPPORTED for step in path.replace("[]", "").split("."))
    return frozenset((*(name for form in FORMS for name in names(form_of(form))), *refused))

"""Documents in which every word that others could have written tries to become markup."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

D = TypeVar("D", bound=msgspec.Struct)

BAD = '"\'>]]></style><script>window.bad=1</script><img src=http://127.0.0.1:9/x onerror=bad()>&amp;\u202e\x1b[2J'
_FIXED = ("schema", "figure", "outcome", "verdict", "phase", "expected", "failure", "finish_reason", "better",
          "session", "currency", "date", "started", "slo")
_READ = ("model", "url", "rate", "concurrency", "workload", "slo", "arrivals", "cpu", "cpus", "drut", "started")


def hostile(document: D) -> D:
    """The same with BAD behind names, titles, reasons, labels, errors and settings; the same word gets the same end,
    so that what belongs together still does."""
    return msgspec.convert(_bad(msgspec.to_builtins(document)), type(document))


def _bad(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        keep = name in ("figures", "samples", "claims", "kinds", "summary")
        words = name in ("settings", "environment", "versions")
        return {_end(k) if words and k not in _READ else k: v if keep else _bad(v, k)
                for k, v in value.items()}
    if isinstance(value, list):
        return [_bad(v, name) for v in value]
    if isinstance(value, str) and value not in ("", "inf") and name not in _FIXED:
        return _end(value)
    return value


def _end(word: str) -> str:
    """A server of an ablation is named by its technique and its side, so the technique has the end."""
    name, side = re.fullmatch(r"(.*?)(/on|/off)?", word, re.DOTALL).groups("")  # type: ignore[union-attr]
    return word if re.search("bad=1", word) else name + BAD + side

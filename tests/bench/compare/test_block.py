"""What a turn says of an engine of which nothing came in time."""

from __future__ import annotations

import msgspec
import pytest

from drut.bench.compare.block import _check_answered, _ended
from drut.bench.engines.engine import EngineFailedError
from drut.bench.report.schema import Request, Result
from tests.bench.report.samples import result


def _with(*requests: Request) -> Result:
    return msgspec.structs.replace(result(), requests=list(requests))


def _unfinished(ttft_ms: float | None) -> Request:
    return Request("s", 0, 0.0, False, ttft_ms=ttft_ms, failure="unfinished", detail="still running when the run ended")


def test_an_engine_of_which_nothing_came_has_failed_and_one_that_is_slow_has_not() -> None:
    with pytest.raises(EngineFailedError, match=r"answered none of 2 requests \(still running"):
        _check_answered(_with(_unfinished(None), _unfinished(None)))
    slow = _with(_unfinished(None), _unfinished(9000.0))
    _check_answered(slow)
    assert not _ended(slow)
    assert _ended(_with(_unfinished(None), Request("s", 0, 0.0, True, ttft_ms=3.0)))

"""What a turn says of an engine of which nothing came in time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from drut.bench.compare.block import _ended, _prompts, _why_slow
from drut.bench.engines.engine import EngineFailedError
from drut.bench.report.schema import Request, Result
from tests.bench.compare.made import FAST, comparing, script
from tests.bench.report.samples import result


def _with(*requests: Request) -> Result:
    return msgspec.structs.replace(result(), requests=list(requests))


def _failed(how: str) -> Request:
    return Request("s", 0, 0.0, False, failure=how, detail=f"it was {how}")  # type: ignore[arg-type]


def test_an_engine_that_still_answers_is_slow_and_has_not_failed(tmp_path: Path) -> None:
    candidate = comparing(tmp_path, [script(tmp_path, "a", FAST)]).candidates[0]
    candidate.serve()
    try:
        assert "too short for this engine" in _why_slow(_with(_failed("unfinished")), candidate, 30.0)
        with pytest.raises(EngineFailedError, match=r"answered none of 2 requests \(it was unfinished"):
            _why_slow(_with(_failed("unfinished"), _failed("status")), candidate, 30.0)
    finally:
        candidate.stop()
    with pytest.raises(EngineFailedError, match="answered none of 1"):
        _why_slow(_with(_failed("unfinished")), candidate, 1.0)


def test_an_answer_that_ended_is_enough() -> None:
    assert not _ended(_with(_failed("unfinished")))
    assert _ended(_with(_failed("unfinished"), Request("s", 0, 0.0, True, ttft_ms=3.0)))


@pytest.mark.parametrize(("told", "wrong"), [
    (1024, 0), (1054, 0), (None, 0), (1020, 0), (512, 1), (0, 1), (2**31 - 1, 1)])
def test_prompts_that_were_cut_and_counts_that_cannot_be_are_told(told: int | None, wrong: int) -> None:
    well = Request("s", 0, 0.0, True, input_tokens=1054, expected_input_tokens=1024)
    found = _prompts(_with(well, msgspec.structs.replace(well, input_tokens=told),
                           msgspec.structs.replace(well, input_tokens=3, measured=False),
                           msgspec.structs.replace(well, input_tokens=3, expected_input_tokens=None)))
    assert len(found) == wrong
    if wrong:
        assert found[0].endswith(f"1 of 2 prompts are not those that were sent, by the engine's count, such as {told} "
                                 "tokens of 1024")

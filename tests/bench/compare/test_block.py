"""The result of a turn of an engine that sent nothing in time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from drut.bench.compare import comparing as module
from drut.bench.compare.block import _ended, _prompts, _why_slow, take
from drut.bench.compare.order import OrderTurn
from drut.bench.engines.engine import EngineFailedError
from drut.bench.result.schema import ReportRequest, Result
from tests.bench import scripted
from tests.bench.compare.made import FAST, comparing, script
from tests.bench.report.samples import result
from tests.bench.tokens.vocabularies import vocabulary


def _with(*requests: ReportRequest) -> Result:
    return msgspec.structs.replace(result(), requests=list(requests))


def _failed(how: str) -> ReportRequest:
    return ReportRequest("s", 0, 0.0, False, failure=how, detail=f"it was {how}")  # type: ignore[arg-type]


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


def test_what_prompts_share_is_asked_once_before_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: scripted.Request) -> None:
        if request.body and request.body["stream"]:
            await scripted.tokens(3, 0.01)(request)
        else:
            await request.json({"choices": []})

    monkeypatch.setattr(module, "_tokenizer", lambda files: vocabulary("gpt-2"))
    cell = "shared-prefix:groups=3,prefix=40,suffix=5,output=3@2"
    with scripted.ScriptedServer(answer) as server:
        what = comparing(tmp_path, [f"there={server.url} m"], cells=[cell])
        candidate = what.candidates[0]
        candidate.serve()
        block = take(OrderTurn(0, 0, cell, "there"), candidate, what.works[0], what.settings, what.tokenizer)
        asked = [request.body for request in server.requests if request.body]
    prompts = [body["messages"][0]["content"] for body in asked]
    assert [(body["stream"], body["max_tokens"]) for body in asked[:4]] == [(False, 1)] * 3 + [(True, 3)]
    assert all(body["stream"] for body in asked[3:])
    assert len({prompt[:40] for prompt in prompts[:3]}) == 3
    assert {prompt[:40] for prompt in prompts[3:]} <= {prompt[:40] for prompt in prompts[:3]}
    assert not set(prompts[:3]) & set(prompts[3:])
    assert block.samples["ttft_ms"]


def test_an_answer_that_ended_is_enough() -> None:
    assert not _ended(_with(_failed("unfinished")))
    assert _ended(_with(_failed("unfinished"), ReportRequest("s", 0, 0.0, True, ttft_ms=3.0)))


@pytest.mark.parametrize(("count", "wrong"), [
    (1024, 0), (1054, 0), (None, 0), (1020, 0), (512, 1), (0, 1), (2**31 - 1, 1)])
def test_prompts_that_were_cut_and_counts_that_cannot_be_are_reported(count: int | None, wrong: int) -> None:
    well = ReportRequest("s", 0, 0.0, True, input_tokens=1054, expected_input_tokens=1024)
    found = _prompts(_with(well, msgspec.structs.replace(well, input_tokens=count),
                           msgspec.structs.replace(well, input_tokens=3, measured=False),
                           msgspec.structs.replace(well, input_tokens=3, expected_input_tokens=None)))
    assert len(found) == wrong
    if wrong:
        assert found[0].endswith(f"1 of 2 prompts differ from those sent, by the engine's count, such as {count} "
                                 "tokens of 1024")

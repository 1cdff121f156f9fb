"""Prompt tokens in steps with decoding streams: as many as the time of a step allows, and never none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drut.engine.schedule.prefill_pacer import MIN, PLAIN_EVERY, STALL, PrefillPacer
from drut.kernels.cost import StepShape
from tests.engine.testbed import predicting


def work(start: int, rows: int, *, decodes: bool = False) -> SimpleNamespace:
    return SimpleNamespace(start=start, rows=rows, samples=int(decodes), decodes=decodes)


STREAMS = [work(40, 1, decodes=True), work(900, 1, decodes=True)]


@pytest.mark.parametrize("start", [0, 17, 5000])
@pytest.mark.parametrize("row_s", [1e-3, 1e-2, 0.05])
def test_a_mixed_step_takes_at_most_so_many_times_a_plain_one(row_s: float, start: int) -> None:
    predictor = predicting(once=1.0, row=row_s, row_token=1e-5)
    tokens = PrefillPacer(predictor).tokens(STREAMS, start, 512)
    usual_s = predictor.seconds(StepShape.of(STREAMS))
    assert predictor.seconds(StepShape.of([*STREAMS, work(start, tokens)])) <= STALL * usual_s
    wider = predictor.seconds(StepShape.of([*STREAMS, work(start, round(1.26 * tokens) + 1)]))
    assert wider > STALL * usual_s, "the next size of a chunk is at most a quarter larger"


def test_chunks_shrink_along_a_prompt() -> None:
    pacer = PrefillPacer(predicting(once=1.0, row=1e-3, row_token=1e-5))
    chunks = [pacer.tokens(STREAMS, start, 512) for start in (0, 100, 1000, 10_000)]
    assert chunks == sorted(chunks, reverse=True)
    assert chunks[0] > 4 * chunks[-1]


@pytest.mark.parametrize("prefilled", [0, 1, MIN, 40])
def test_a_few_tokens_always_may_however_long_they_take(prefilled: int) -> None:
    pacer = PrefillPacer(predicting(once=1.0, row=10.0))
    found = pacer.tokens([*STREAMS, *([work(0, prefilled)] if prefilled else [])], 100, 512)
    assert found == max(0, MIN - prefilled)
    assert pacer.tokens(STREAMS, 100, 2) == 2


def test_prompts_of_a_step_share_what_may_be_added() -> None:
    pacer = PrefillPacer(predicting(once=1.0, row=1e-2))
    first = pacer.tokens(STREAMS, 0, 512)
    second = pacer.tokens([*STREAMS, work(0, first // 2)], 0, 512)
    assert first * 0.4 <= second <= first * 0.6 + 1
    assert pacer.tokens([*STREAMS, work(0, first)], 0, 512) <= first * 0.25


def test_no_more_than_there_is() -> None:
    assert PrefillPacer(predicting(once=1.0)).tokens(STREAMS, 0, 77) == 77


def test_every_so_often_a_step_has_no_prompts() -> None:
    """Steps without prompts show what decoding alone takes, so that the predictor separates it from the prompts."""
    pacer, found = PrefillPacer(predicting(once=1.0)), []
    for _ in range(3 * (PLAIN_EVERY + 1)):
        found.append(pacer.tokens(STREAMS, 0, 10))
        pacer.scheduled(mixed=found[-1] > 0)
    assert [i for i, tokens in enumerate(found) if tokens == 0] == [(PLAIN_EVERY + 1) * n - 1 for n in (1, 2, 3)]

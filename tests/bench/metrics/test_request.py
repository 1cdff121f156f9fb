"""Figures of one request, and the mistakes that other clients made in them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.metrics.request import Slo, timing
from drut.bench.metrics.tokens import carried, output_tokens, spread
from drut.errors import RequestError
from tests.bench.records import failed, record


def test_the_three_clocks() -> None:
    t = timing(record(10.0, [0.5, 0.6, 0.7], 3, sent=10.2))
    assert t.ttft == pytest.approx(0.5)
    assert t.ttft_sent == pytest.approx(0.3)
    assert t.e2e == pytest.approx(0.7)
    assert t.tpot == pytest.approx(0.1)
    assert t.itl == pytest.approx([0.1, 0.1])


def test_an_answer_is_over_with_its_last_output_not_with_its_connection() -> None:
    assert timing(record(10.0, [0.5, 0.6], 2, ended=19.0)).e2e == pytest.approx(0.6)
    assert timing(record(10.0, [0.6], 2, ended=19.0, streamed=False)).e2e == pytest.approx(0.6)


def test_more_pieces_than_tokens_end_with_the_last_text() -> None:
    """Four pieces of two tokens: the pace is of the time until text stopped coming."""
    t = timing(record(0.0, [0.02, 0.04, 0.06, 0.08], 2, chars=[3, 2, 4, 2]))
    assert (t.ttft, t.e2e, t.tpot) == (0.02, 0.08, pytest.approx(0.06))
    assert t.itl == pytest.approx([0.06])
    assert timing(record(0.0, [0.02, 0.04, 0.06], 1)).e2e == 0.06
    assert timing(record(0.0, [0.02, 0.04, 0.06], text="Hello"), lambda text: 2).e2e == 0.06
    assert timing(record(0.0, [0.02, 0.04, 0.06])).e2e == 0.06


def test_itl_of_bundled_tokens_is_per_token() -> None:
    """Four tokens every 40 ms are one every 10 ms: neither 40, nor 0 for those that came together."""
    t = timing(record(0.0, [0.1, 0.14, 0.18], 9, reported=[1, 4, 4]))
    assert t.itl == pytest.approx([0.01] * 8)
    assert t.tpot == pytest.approx(0.01)


@given(st.lists(st.floats(1e-4, 2.0), min_size=2, max_size=30), st.integers(2, 200),
       st.lists(st.integers(0, 40), min_size=30, max_size=30))
def test_the_mean_itl_is_tpot(gaps: list[float], tokens: int, chars: list[int]) -> None:
    r = record(5.0, list(np.cumsum(gaps)), tokens, chars=chars[: len(gaps)])
    t = timing(r)
    assert t.ttft is not None
    assert t.ttft > 0
    assert t.e2e == pytest.approx(r.arrivals[-1] - 5.0)
    assert t.tpot == pytest.approx((r.arrivals[-1] - r.arrivals[0]) / (tokens - 1))
    assert len(t.itl) == tokens - 1
    assert t.itl.mean() == pytest.approx(t.tpot)
    assert t.itl.min() >= 0


@given(st.integers(1, 300), st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_spreading_loses_no_token_and_starves_no_arrival(tokens: int, weights: list[int]) -> None:
    parts = spread(tokens, weights)
    assert parts.sum() == tokens
    assert parts[0] >= 1
    assert parts[-1] >= (1 if tokens > 1 else 0)
    assert parts.min() >= (1 if tokens >= len(weights) else 0)
    if tokens == sum(weights) and min(weights) > 0:
        assert list(parts) == weights


def test_tokens_go_with_length_of_text_and_one_a_piece_where_that_fits() -> None:
    assert list(carried(record(0, [1, 2, 3], chars=[4, 8, 4]), 8)) == [2, 4, 2]
    assert list(carried(record(0, [1, 2, 3], chars=[1, 90, 1]), 3)) == [1, 1, 1]
    assert list(carried(record(0, [1, 2], chars=[0, 0]), 4)) == [2, 2]
    assert list(carried(record(0, [1, 2, 3], chars=[4, 4, 0], reported=[2, 3, -1]), 6)) == [2, 3, 1]


def test_pieces_are_never_counted_as_tokens() -> None:
    three_pieces = record(0, [1, 2, 3], text="one two three four five")
    assert output_tokens(three_pieces) is None
    assert output_tokens(three_pieces, lambda text: len(text.split())) == 5
    assert output_tokens(record(0, [1, 2, 3], 40), lambda text: 5) == 40
    assert output_tokens(record(0, [1, 2], reported=[3, 4])) == 7
    assert timing(three_pieces).tpot is None


@pytest.mark.parametrize(("counted", "tokens", "finish"), [
    (62, 64, "length"), (66, 64, "length"), (62, 62, "stop"), (40, 40, "length"), (None, None, "length")])
def test_an_answer_that_was_cut_has_the_tokens_it_was_cut_at(
    counted: int | None, tokens: int | None, finish: str
) -> None:
    """Its text alone may be cut to others again; one that is far shorter was not cut there."""
    cut = record(0, [1, 2, 3], text="one two", max_tokens=64, finish_reason=finish)
    assert timing(cut, lambda text: counted).tokens == tokens


def test_what_was_not_streamed_has_no_ttft_itl_and_tpot() -> None:
    t = timing(record(0.0, [2.0], 50, streamed=False))
    assert (t.ttft, t.ttft_sent, t.tpot, len(t.itl)) == (None, None, None, 0)
    assert t.e2e == 2.0


def test_tokens_in_one_piece_have_no_pace() -> None:
    t = timing(record(0.0, [2.0], 50))
    assert (t.ttft, t.tpot, len(t.itl)) == (2.0, None, 0)


@pytest.mark.parametrize("broken", [record(5.0, [0.1], 1, sent=None), record(5.0, [], 3), failed(5.0),
                                    record(5.0, [0.1], 1, failure="cut")])
def test_a_missing_time_is_no_negative_or_zero_ttft(broken) -> None:
    t = timing(broken)
    assert not t.ok
    assert (t.ttft, t.ttft_sent, t.e2e, t.tpot) == (None, None, None, None)


def test_limits() -> None:
    slo = Slo.parse("ttft=500,tpot=50ms,e2e=3s")
    assert slo == Slo(0.5, 0.05, 3.0)
    assert slo.good(timing(record(0.0, [0.4, 0.44], 2)))
    assert not slo.good(timing(record(0.0, [0.51, 0.52], 2)))
    assert not slo.good(timing(record(0.0, [0.4, 0.46], 2)))
    assert not slo.good(timing(record(0.0, [0.4, 0.44, 3.1], 90)))
    assert slo.good(timing(record(0.0, [0.4], 1)))
    assert not slo.good(timing(record(0.0, [0.4], 50)))  # of unknown pace, not of pace 0
    assert not slo.good(timing(record(0.0, [0.4], 9, streamed=False)))
    assert not slo.good(timing(failed()))


@pytest.mark.parametrize("text", ["ttft", "ttft=", "ttft=-1", "ttft=0", "itl=3", "ttft=1,ttft=2", "ttft=nan", "",
                                  "e2e=5m"])
def test_limits_that_make_no_sense(text: str) -> None:
    with pytest.raises(RequestError, match="--slo"):
        Slo.parse(text)

"""Costs, against sums done by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.cost import Price, ResourceUsage, amount, cost, describe, input_busy_share, parse_price
from drut.errors import RequestError

PRICE = parse_price("3.60/h@2026-11-01 list price of a machine")
# 600 s at 3.60 an hour are 0.60.
USAGE = ResourceUsage(seconds=600, requests=300, input_tokens=500_000, cached_tokens=100_000, output_tokens=60_000,
                      input_busy_share=0.25)


def test_a_bill_split_by_busy_time() -> None:
    found = cost(PRICE, USAGE)
    assert found.run == pytest.approx(0.60)
    assert found.per_request == pytest.approx(0.002)
    assert found.per_million_uncached_input == pytest.approx(0.15 / 0.4)  # a quarter of 0.60 over 400,000 tokens
    assert found.per_million_cached_input == 0
    assert found.per_million_output == pytest.approx(0.45 / 0.06)
    assert found.per_million_output_alone == pytest.approx(10)  # 3.60 * 1e6 / (3600 * 100 tokens/s)
    assert (found.date, found.source, found.currency) == ("2026-11-01", "list price of a machine", "USD")


def test_cached_tokens_at_a_part_of_the_price() -> None:
    price = Price(PRICE.date, "s", per_hour=3.6, cached_ratio=0.1)
    found = cost(price, USAGE)
    assert found.per_million_uncached_input == pytest.approx(0.15 / 0.41)
    assert found.per_million_cached_input == pytest.approx(0.015 / 0.41)


def test_an_unknown_split_is_not_guessed() -> None:
    found = cost(PRICE, ResourceUsage(600, 300, 500_000, 100_000, 60_000))
    assert found.per_million_output_alone == pytest.approx(10)
    assert found.per_million_uncached_input is found.per_million_cached_input is found.per_million_output is None
    assert "prompts included" in describe(found)


def test_a_machine_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    owned = {"capex": 35_064, "years": 4, "kw": 2, "pue": 1.25, "per_kwh": 0.2}
    path.write_text(json.dumps({"owned": owned, "date": "2026-01-31", "source": "invoice", "currency": "EUR"}))
    assert parse_price(str(path)).hourly == pytest.approx(1.5)  # 35,064 over 35,064 hours, and 2.5 kW at 0.20


def test_busy_time_of_prompts() -> None:
    assert input_busy_share(prefill_s=0.3, output_tokens=100, step_s=0.001) == pytest.approx(0.75)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 10**9))
def test_the_parts_add_up_to_the_bill(share: float, ratio: float, uncached: int, cached: int, output: int) -> None:
    price = Price(PRICE.date, "s", per_hour=2.0, cached_ratio=ratio)
    found = cost(price, ResourceUsage(seconds=1800, requests=1, input_tokens=uncached + cached, cached_tokens=cached,
                                      output_tokens=output, input_busy_share=share))
    assert found.per_million_uncached_input is not None
    assert found.per_million_cached_input is not None
    assert found.per_million_output is not None
    parts = (found.per_million_uncached_input * uncached + found.per_million_cached_input * cached
             + found.per_million_output * output) / 1e6
    assert parts == pytest.approx(found.run) == pytest.approx(1.0)


def test_no_work_has_no_shares() -> None:
    with pytest.raises(RequestError, match="busy"):
        input_busy_share(0, 0, 0.001)


def test_nothing_served_has_no_price() -> None:
    found = cost(PRICE, ResourceUsage(seconds=600, requests=0, input_tokens=0, cached_tokens=0, output_tokens=0,
                                      input_busy_share=0.5))
    assert found.run == pytest.approx(0.6)
    assert found.per_request is found.per_million_output is found.per_million_uncached_input is None
    assert "-" in describe(found)


def test_the_price_is_told_with_its_date_and_source() -> None:
    text = describe(cost(PRICE, USAGE))
    assert "USD at 3.60 an hour of 2026-11-01 (list price of a machine)" in text
    assert "0.375, cached 0.00" in text
    assert "25% of the time" in text


@pytest.mark.parametrize(("text", "currency", "hourly"), [
    ("1.20/h@2026-11-01", "USD", 1.2), ("$1.20/h@2026-11-01", "USD", 1.2), ("EUR 2/h@2026-11-01", "EUR", 2),
    ("€0.5/h@2026-11-01", "EUR", 0.5), ("INR90/h@2026-11-01", "INR", 90)])
def test_short_prices(text: str, currency: str, hourly: float) -> None:
    price = parse_price(text)
    assert (price.currency, price.hourly, price.date.isoformat()) == (currency, hourly, "2026-11-01")


@pytest.mark.parametrize("text", [
    "1.20", "1.20/h", "1.20/h@yesterday", "1.20/h@2026-13-01", "-1/h@2026-11-01", "1.2.3/h@2026-11-01",
    "./h@2026-11-01", "missing.json", "", "9999999999999/h@2026-11-01"])
def test_a_price_that_is_none_is_named(text: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_price(text)
    assert text in str(error.value)


@pytest.mark.parametrize("fields", [
    {"per_hour": 1}, {"date": "2026-01-01", "source": "s"},
    {"date": "2026-01-01", "source": "s", "per_hour": 1, "x": 2},
    {"date": "2026-01-01", "source": "s", "per_hour": -1}, {"date": "2026-01-01", "source": "s", "per_hour": "1"},
    {"date": "2026-01-01", "source": "s", "per_hour": 1, "currency": "euro"}, []])
def test_a_price_file_is_read_strictly(tmp_path: Path, fields: Any) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(RequestError, match=r"p\.json"):
        parse_price(str(path))


def test_usage_that_cannot_be() -> None:
    with pytest.raises(RequestError, match="cached_tokens"):
        cost(PRICE, ResourceUsage(1, 1, 5, 6, 1))
    with pytest.raises(RequestError, match="input_busy_share"):
        cost(PRICE, ResourceUsage(seconds=1, requests=1, input_tokens=5, cached_tokens=5, output_tokens=1,
                                  input_busy_share=1.5))


@pytest.mark.parametrize(("value", "text"), [
    (None, "-"), (0.0, "0.00"), (1234.567, "1234.57"), (12.345, "12.35"), (0.1234, "0.123"), (0.000123456, "0.000123")])
def test_amounts_have_three_digits(value: float | None, text: str) -> None:
    assert amount(value) == text

"""What tokens and requests cost at a dated price, with the machine billed for all of the run, idle or not.

A machine that computes prompts for a share s of its busy time has s of the bill put on input tokens and the rest on
output tokens. Input tokens found in a cache count as a part of one that was computed.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from drut.errors import RequestError

HOURS_A_YEAR = 8766.0  # with leap years

_Positive = Annotated[float, Meta(gt=0, lt=1e12)]
_NotNegative = Annotated[float, Meta(ge=0, lt=1e12)]
_SHORT = re.compile(r"([A-Z]{3} ?|[$€£])?([0-9.]+)/h@(\S+)(?: (.+))?")
_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP"}


class Owned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine that was bought."""

    capex: _NotNegative
    years: _Positive
    kw: _NotNegative  # drawn in the run
    pue: Annotated[float, Meta(ge=1, le=10)]  # power of the whole site over that of its machines
    per_kwh: _NotNegative

    @property
    def per_hour(self) -> float:
        """Of every hour, used or not."""
        return self.capex / (self.years * HOURS_A_YEAR) + self.kw * self.pue * self.per_kwh


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the machines of a run cost together. One of `per_hour` and `owned` is given."""

    date: datetime.date
    source: str
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")] = "USD"
    per_hour: _NotNegative | None = None
    owned: Owned | None = None
    cached_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.0  # of a cached input token to one that is computed

    def __post_init__(self) -> None:
        if (self.per_hour is None) == (self.owned is None):
            raise ValueError("a price needs one of per_hour and owned")

    @property
    def hourly(self) -> float:
        """In `currency` an hour."""
        return self.owned.per_hour if self.owned else self.per_hour or 0.0


class Usage(msgspec.Struct, frozen=True):
    """What was served in a run, whose failures are in neither tokens nor requests.

    `input_busy_share`: of the machine's busy time, what went into prompts; None where it is not known.
    """

    seconds: float
    requests: int
    input_tokens: int  # with cached ones
    cached_tokens: int
    output_tokens: int
    input_busy_share: float | None = None


@dataclass(frozen=True)
class Cost:
    """In `currency`; None where there is nothing to divide by, or the split is not known."""

    currency: str
    date: str
    source: str
    per_hour: float
    run: float
    per_request: float | None
    per_million_output_alone: float | None  # with all of the bill on output tokens
    input_busy_share: float | None
    per_million_uncached_input: float | None
    per_million_cached_input: float | None
    per_million_output: float | None


def parse_price(text: str) -> Price:
    """A price such as `1.20/h@2026-11-01`, with a currency before it (`EUR 1.20/h@...`, `$1.20/h@...`; USD where there
    is none) and a source behind it if wished, or the path of a .json file with the fields of `Price`.

    Raises RequestError, which names what is wrong.
    """
    if text.endswith(".json"):
        return _checked(text, lambda: msgspec.json.decode(Path(text).read_bytes(), type=Price))
    found = _SHORT.fullmatch(text)
    if not found:
        raise RequestError(f"--price: {text!r} is not like 1.20/h@2026-11-01, nor the name of a .json file")
    currency = _SIGNS.get(found[1] or "$", found[1] or "").strip()
    fields = {"per_hour": found[2], "date": found[3], "source": found[4] or "as given", "currency": currency}
    return _checked(f"--price: {text!r}", lambda: msgspec.convert(fields, Price, strict=False))


def _checked(name: str, read: Callable[[], Price]) -> Price:
    try:
        return read()
    except (OSError, ValueError) as error:  # msgspec's errors are of ValueError
        raise RequestError(f"{name}: {error}") from None


def input_busy_share(prefill_s: float, output_tokens: float, step_s: float) -> float:
    """The share of prompts in the busy time: of a request whose prompt takes `prefill_s` alone and each of whose
    `output_tokens` adds `step_s` to a step. With the rate of requests l, it is l T_pre / (l T_pre + l o t1).

    Raises RequestError where there is no work.
    """
    decode_s = output_tokens * step_s
    if not prefill_s + decode_s > 0:
        raise RequestError("busy time must be above 0 to be shared")
    return prefill_s / (prefill_s + decode_s)


def cost(price: Price, usage: Usage) -> Cost:
    """What a run cost, by token and by request. Raises RequestError where the usage cannot be."""
    share = usage.input_busy_share
    if not 0 <= usage.cached_tokens <= usage.input_tokens:
        raise RequestError("cached_tokens must be from 0 to input_tokens")
    if share is not None and not 0 <= share <= 1:
        raise RequestError("input_busy_share must be from 0 to 1")
    bill = price.hourly * usage.seconds / 3600
    uncached = output = None
    if share is not None:
        computed = usage.input_tokens - usage.cached_tokens + price.cached_ratio * usage.cached_tokens
        uncached = _per(share * bill * 1e6, computed)
        output = _per((1 - share) * bill * 1e6, usage.output_tokens)
    return Cost(currency=price.currency, date=price.date.isoformat(), source=price.source, per_hour=price.hourly,
                run=bill, per_request=_per(bill, usage.requests),
                per_million_output_alone=_per(bill * 1e6, usage.output_tokens), input_busy_share=share,
                per_million_uncached_input=uncached,
                per_million_cached_input=None if uncached is None else price.cached_ratio * uncached,
                per_million_output=output)


def _per(amount: float, count: float) -> float | None:
    return amount / count if count > 0 else None


def amount(value: float | None) -> str:
    """Three significant digits, never fewer than two decimals; `-` where there is none."""
    if value is None:
        return "-"
    digits = 2 if value == 0 else max(2, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 12)}f}"


def describe(cost: Cost) -> str:
    """Lines for people: the figures, and the price with its date and source."""
    lines = [f"per request                 {amount(cost.per_request)}"]
    if cost.input_busy_share is None:
        lines.append(f"per million output tokens   {amount(cost.per_million_output_alone)} (prompts included)")
    else:
        lines += [f"per million input tokens    {amount(cost.per_million_uncached_input)}, "
                  f"cached {amount(cost.per_million_cached_input)}",
                  f"per million output tokens   {amount(cost.per_million_output)}",
                  f"prompts are charged with    {cost.input_busy_share:.0%} of the time"]
    price = f"{cost.currency} at {amount(cost.per_hour)} an hour of {cost.date} ({cost.source}), idle time included"
    return "\n".join([*lines, price])

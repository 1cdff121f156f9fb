"""The cost of tokens and requests at a dated price, with the machine billed for the whole run, idle or not.

If a machine computes prompts in a share s of its busy time, s of the bill is the cost of input tokens and the rest is
the cost of output tokens. An input token from the prefix cache counts as a fraction of a computed one.
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
    """A machine that was bought, and its running costs."""

    capex: _NotNegative
    years: _Positive
    kw: _NotNegative  # drawn during the run
    pue: Annotated[float, Meta(ge=1, le=10)]  # power of the whole data centre divided by the power of its machines
    per_kwh: _NotNegative

    @property
    def per_hour(self) -> float:
        """Returns the cost of every hour, used or not."""
        return self.capex / (self.years * HOURS_A_YEAR) + self.kw * self.pue * self.per_kwh


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price of all machines of a run together. Exactly one of `per_hour` and `owned` is set."""

    date: datetime.date
    source: str
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")] = "USD"
    per_hour: _NotNegative | None = None
    owned: Owned | None = None
    # cost of a cached input token divided by that of a computed one
    cached_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        if (self.per_hour is None) == (self.owned is None):
            raise ValueError("a price needs exactly one of per_hour and owned")

    @property
    def hourly(self) -> float:
        """Returns the price of an hour in `currency`."""
        return self.owned.per_hour if self.owned else self.per_hour or 0.0


class ResourceUsage(msgspec.Struct, frozen=True):
    """The tokens and requests that a run served; failed requests count in neither.

    `input_busy_share` is the share of the machine's busy time spent on prompts; None if it is unknown.
    """

    seconds: float
    requests: int
    input_tokens: int  # including cached tokens
    cached_tokens: int
    output_tokens: int
    input_busy_share: float | None = None


@dataclass(frozen=True)
class ServingCost:
    """Costs in `currency`; None if there is nothing to divide by or the split is unknown."""

    currency: str
    date: str
    source: str
    per_hour: float
    run: float
    per_request: float | None
    per_million_output_alone: float | None  # if output tokens bear the whole bill
    input_busy_share: float | None
    per_million_uncached_input: float | None
    per_million_cached_input: float | None
    per_million_output: float | None


def parse_price(text: str) -> Price:
    """Parses a price such as `1.20/h@2026-11-01`, with an optional currency before it (`EUR 1.20/h@...`, `$1.20/h@...`;
    default: USD) and an optional source after it, or the path of a .json file with the fields of `Price`.

    Raises RequestError, which names the fault.
    """
    if text.endswith(".json"):
        return _checked(text, lambda: msgspec.json.decode(Path(text).read_bytes(), type=Price))
    found = _SHORT.fullmatch(text)
    if not found:
        raise RequestError(f"--price: {text!r} is neither like 1.20/h@2026-11-01 nor the name of a .json file")
    currency = _SIGNS.get(found[1] or "$", found[1] or "").strip()
    fields = {"per_hour": found[2], "date": found[3], "source": found[4] or "as given", "currency": currency}
    return _checked(f"--price: {text!r}", lambda: msgspec.convert(fields, Price, strict=False))


def _checked(name: str, read: Callable[[], Price]) -> Price:
    try:
        return read()
    except (OSError, ValueError) as error:  # msgspec's errors are subclasses of ValueError
        raise RequestError(f"{name}: {error}") from None


def input_busy_share(prefill_s: float, output_tokens: float, step_s: float) -> float:
    """Returns the share of prompts in the busy time, for requests whose prompt takes `prefill_s` alone and whose
    `output_tokens` each add `step_s` to a step. With a rate of requests l it is l T_pre / (l T_pre + l o t1).

    Raises RequestError if there is no work.
    """
    decode_s = output_tokens * step_s
    if not prefill_s + decode_s > 0:
        raise RequestError("the busy time must be above 0")
    return prefill_s / (prefill_s + decode_s)


def cost(price: Price, usage: ResourceUsage) -> ServingCost:
    """Returns the cost of a run by token and by request. Raises RequestError if the usage is inconsistent."""
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
    return ServingCost(currency=price.currency, date=price.date.isoformat(), source=price.source, per_hour=price.hourly,
                       run=bill, per_request=_per(bill, usage.requests),
                       per_million_output_alone=_per(bill * 1e6, usage.output_tokens), input_busy_share=share,
                       per_million_uncached_input=uncached,
                       per_million_cached_input=None if uncached is None else price.cached_ratio * uncached,
                       per_million_output=output)


def _per(amount: float, count: float) -> float | None:
    return amount / count if count > 0 else None


def amount(value: float | None) -> str:
    """Formats an amount with three significant digits and at least two decimals; `-` for None."""
    if value is None:
        return "-"
    digits = 2 if value == 0 else max(2, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 12)}f}"


def describe(cost: ServingCost) -> str:
    """Formats the costs for people: the figures, and the price with its date and source."""
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

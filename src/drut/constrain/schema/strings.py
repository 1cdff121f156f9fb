"""Keywords of strings in canonical form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drut.constrain.patterns import SEARCH, translated
from drut.constrain.schema.keywords import Made, count
from drut.constrain.schema.references import Path
from drut.errors import RequestError

if TYPE_CHECKING:
    from drut.constrain.schema.canonical import Canonical

Schema = dict[str, Any]
# The library accepts 30 days in February, and 61 seconds in any minute.
_LONG, _SHORT = "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])", "(0[469]|11)-(0[1-9]|[12][0-9]|30)"
_LEAP = "[1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00"
_DATE = f"([1-9][0-9]{{3}}-({_LONG}|{_SHORT}|02-(0[1-9]|1[0-9]|2[0-8]))|({_LEAP})-02-29)"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_POINTER = "(/([^~/]|~[01])*)*"
FORMATS: Mapping[str, str] = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}T{_TIME}$",
                           "json-pointer": f"^{_POINTER}$", "relative-json-pointer": f"^(0|[1-9][0-9]*)(#|{_POINTER})$"}
KNOWN = frozenset(("duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"))  # formats of the library
# The other formats of the specification. Formats outside these sets are annotations.
REFUSED = frozenset(("idn-email", "idn-hostname", "iri", "iri-reference", "regex", "uri-reference", "uri-template"))


def made(canonical: Canonical, given: Mapping[str, Any], path: Path) -> Made | None:
    """Returns the keywords of strings, and further schemas that strings must fit; None if no string fits."""
    low, high = count(given, "minLength"), count(given, "maxLength", math.inf)
    if low > high:
        return None
    simple: Schema = {"minLength": low} if low else {}
    if high < math.inf:
        simple["maxLength"] = int(high)
    more: list[Schema] = []
    if "pattern" in given and (pattern := translated(given["pattern"])) != f"^(?:{SEARCH}{SEARCH})$":
        simple["pattern"] = pattern
    name = given.get("format", "")
    if name in REFUSED:
        raise RequestError(f"format {name!r} is not supported")
    if name in KNOWN:
        simple["format"] = name
    elif name in FORMATS:
        made_of = translated(FORMATS[name])
        if "pattern" in simple:
            more.append({"pattern": made_of})
        else:
            simple["pattern"] = made_of
    return simple, more


def lengths(low: int, high: int | None) -> str:
    """Returns a library pattern for strings of these lengths."""
    return rf"^[\x{{0}}-\x{{10ffff}}]{{{low},{'' if high is None else high}}}$"

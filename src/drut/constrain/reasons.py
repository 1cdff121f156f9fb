"""What the grammar library says is wrong, in a line for clients."""

from __future__ import annotations

import re

MOST_CHARS = 300
PLACE = re.compile(r"(?:at )?(\d+)\(\d+\): ([^\n]*)")
ITS_OWN = " <non-verbose/>"
PLAIN = (
    ("Regex is empty: ", "no value fits: pattern, format, enum and lengths leave no string"),
    ("are not disjoint", "patternProperties: two patterns match the same name, which is not supported"),
    ("determine if patternProperty", "patternProperties: whether two patterns match the same name is not found out"),
    ("circular references with sibling keys", "a $ref that leads back to itself has other keywords beside it"),
    ("NoExtensionBias", "no token of this model can come next"),
)
INSIDE = "failed to compile JSON schema: "  # of a grammar, whose lines follow: they may be none that the client wrote


def reason(message: str) -> str:
    """Its message in one short line."""
    for mark, plain in PLAIN:
        if mark in message:
            return plain
    if place := PLACE.match(message):  # the lines of the grammar that follow are not what the client wrote
        message = f"{place[2]} (line {place[1]})"
    if INSIDE in message:
        message = message.partition(INSIDE)[2].partition("\n")[0]
    message = message.replace("Unsatisfiable schema: ", "no value fits: ").partition("while processing json-schema:")[0]
    line = " ".join(message.split()).removesuffix(ITS_OWN)
    return line if len(line) <= MOST_CHARS else line[: MOST_CHARS - 3] + "..."

"""Turns the grammar library's error messages into one line for clients."""

from __future__ import annotations

import re

MAX_CHARS = 300
ITS_OWN = " <non-verbose/>"
PLACE = re.compile(r"(?:at )?(\d+)\(\d+\): ")
SNIPPET = re.compile(r"^ *\d+ \| .*(?:\n *\^+ *$)?", re.MULTILINE)  # lines of the generated grammar
PLAIN = (
    ("Regex is empty: ", "no value fits: pattern, format, enum and lengths leave no string"),
    ("are not disjoint", "patternProperties: two patterns match the same name, which is not supported"),
    ("determine if patternProperty", "patternProperties: it is unknown whether two patterns match the same name"),
    ("circular references with sibling keys", "a $ref that leads back to itself has sibling keywords"),
    ("Value for 'multipleOf' has too many digits", "multipleOf: no float has this value"),
    ("Unable to determine if regex is empty", "it is unknown whether pattern, format and lengths allow a string"),
    ("NoExtensionBias", "no token of this model can come next"),
)
INSIDE = "failed to compile JSON schema: "  # inside a grammar, whose rules the client may not know


def reason(message: str, *, placed: bool = True) -> str:
    """Returns the message as one short line; `placed`: with the line of the grammar."""
    for mark, plain in PLAIN:
        if mark in message:
            return plain
    message = SNIPPET.sub("", message)
    place = PLACE.match(message)
    line = f" (line {place[1]})" if place and placed and INSIDE not in message else ""
    message = message[place.end() if place else 0 :].removeprefix(INSIDE).partition("while processing json-schema:")[0]
    message = " ".join(message.replace("Unsatisfiable schema: ", "no value fits: ").split()).removesuffix(ITS_OWN)
    room = MAX_CHARS - len(line)
    return (message if len(message) <= room else message[: room - 3] + "...") + line

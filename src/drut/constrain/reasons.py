"""What the grammar library says is wrong, in a line for clients."""

from __future__ import annotations

MOST_CHARS = 300
ITS_OWN = " <non-verbose/>"
INSIDE = "failed to compile JSON schema: "  # of a grammar, whose lines follow: they may be none that the client wrote


def reason(message: str) -> str:
    """Its message in one short line."""
    if "oneOf constraints are not supported" in message:
        return "oneOf: its alternatives cannot be told apart from the start; use anyOf"
    if "NoExtensionBias" in message:
        return "no token of this model can come next"
    if INSIDE in message:
        message = message.partition(INSIDE)[2].partition("\n")[0]
    line = " ".join(message.split()).removesuffix(ITS_OWN)
    return line if len(line) <= MOST_CHARS else line[: MOST_CHARS - 3] + "..."

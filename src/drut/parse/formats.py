"""The call formats of model families, as data; `CallParser` parses all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from drut.parse.offer import call_id, short_id


@dataclass(frozen=True)
class Format:
    """A format of tool calls, which are between `opens` and `closes`; both may be empty.

    `bare`: an output that begins with one of these characters may be a call without `opens`. `between`: text that may
    separate two calls. `named`: a call may be a name and then an object. `before`, `after`: the text around a call's
    arguments, with NAME for the tool's name.
    """

    name: str
    opens: str
    closes: str
    before: str
    after: str
    bare: str = ""
    between: str = ""
    named: bool = False
    new_id: Callable[[], str] = call_id

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of the format, which may be special tokens."""
        inner = ("[CALL_ID]", "[ARGS]") if self.named else ()
        return tuple(mark for mark in (self.opens, self.closes, *inner) if mark)

    @property
    def around(self) -> tuple[str, str]:
        """The marks around calls; an empty second mark is the end of the output."""
        return ("{", "") if self.bare else (self.opens, self.closes)

    def tag(self, name: str) -> tuple[str, str]:
        """Returns the text around the arguments of a call of this tool."""
        quoted = json.dumps(name, ensure_ascii=False)[1:-1]
        return self.before.replace("NAME", quoted), self.after


HERMES = Format("hermes", "<tool_call>", "</tool_call>", '<tool_call>\n{"name": "NAME", "arguments": ',
                "}\n</tool_call>")
LLAMA3 = Format("llama3", "<|python_tag|>", "", '{"name": "NAME", "parameters": ', "}", bare="{", between=";")
MISTRAL = Format("mistral", "[TOOL_CALLS]", "", '[TOOL_CALLS][{"name": "NAME", "arguments": ', "}]", named=True,
                 new_id=short_id)
MISTRAL_NAMED = Format("mistral-named", "[TOOL_CALLS]", "", "[TOOL_CALLS]NAME[ARGS]", "", named=True, new_id=short_id)
JSON = Format("json", "", "", '{"name": "NAME", "arguments": ', "}", bare="{[")
FORMATS = {f.name: f for f in (HERMES, LLAMA3, MISTRAL, MISTRAL_NAMED, JSON)}

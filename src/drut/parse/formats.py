"""How families of models write calls, as data; `CallParser` reads any of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from drut.parse.offer import call_id, short_id


@dataclass(frozen=True)
class Format:
    """Calls stand between `opens` and `closes`, either of which may be empty.

    `bare`: an answer that begins with one of these characters may be a call without `opens`. `between`: what may
    stand between two calls. `named`: a call may be a name and then an object. `before`, `after`: what is written around
    a call's arguments, NAME being the tool's.
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
        """What may be special tokens in it."""
        inner = ("[CALL_ID]", "[ARGS]") if self.named else ()
        return tuple(mark for mark in (self.opens, self.closes, *inner) if mark)

    @property
    def around(self) -> tuple[str, str]:
        """Marks between which all belongs to calls; an empty second one is the end of the answer."""
        return ("{", "") if self.bare else (self.opens, self.closes)

    def tag(self, name: str) -> tuple[str, str]:
        """What the arguments of a call of this tool are written between."""
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

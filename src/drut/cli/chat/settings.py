"""The settings of a chat, by the names and texts of /set."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drut.cli.sampling import FLAGS
from drut.engine.request.params import SamplingParams
from drut.errors import RequestError, did_you_mean

SWITCHES = {"markdown": ("on", "off"), "reasoning": ("show", "hide")}  # the words for true and false
NAMES = (*FLAGS, *SWITCHES)
NONE = "none"  # the word that restores the default of SamplingParams


@dataclass(frozen=True)
class ChatSettings:
    """How answers are sampled and shown. `markdown`: rendered; `reasoning`: shown."""

    params: SamplingParams
    markdown: bool = True
    reasoning: bool = True

    def with_text(self, name: str, text: str) -> ChatSettings:
        """Returns the settings with `name` set to what a person typed. Raises RequestError with the name."""
        check_name(name)
        if name not in SWITCHES:
            return self.with_values({name: _value(name, text)})
        words = SWITCHES[name]
        if text not in words:
            raise RequestError(f"{name} must be {' or '.join(words)}, not {text!r}")
        return self.with_values({name: text == words[0]})

    def with_values(self, values: Mapping[str, Any]) -> ChatSettings:
        """Returns the settings with several values replaced. Raises RequestError with the name of a wrong one."""
        for name, value in values.items():
            check_name(name)
            if name in SWITCHES and not isinstance(value, bool):
                raise RequestError(f"{name} must be true or false, not {value!r}")
        shown = {name: bool(values[name]) for name in SWITCHES if name in values}
        sampled = {name: value for name, value in values.items() if name not in SWITCHES}
        return dataclasses.replace(self, params=dataclasses.replace(self.params, **sampled), **shown)

    def values(self) -> dict[str, Any]:
        """Returns all settings by name, as `with_values` takes them."""
        return {name: getattr(self if name in SWITCHES else self.params, name) for name in NAMES}

    def text(self, name: str) -> str:
        """Returns the value of a setting as `with_text` takes it. Raises RequestError for an unknown name."""
        check_name(name)
        value = self.values()[name]
        if name in SWITCHES:
            return SWITCHES[name][0 if value else 1]
        if value is None or value == ():
            return NONE
        return json.dumps(value, ensure_ascii=False) if name == "stop" else str(value)


def check_name(name: str) -> None:
    """Raises RequestError for an unknown name, with the nearest known one."""
    if name not in NAMES:
        raise RequestError(f"no setting {name!r}{did_you_mean(name, NAMES)} (/set lists them)")


def _value(name: str, text: str) -> Any:
    """Converts what a person typed; a stop string may also be a JSON string or a JSON list of them."""
    if text == NONE:
        return getattr(SamplingParams(), name)
    if name == "stop":
        try:
            return json.loads(text) if text[:1] in ('"', "[") else text
        except ValueError:
            return text
    try:
        return FLAGS[name].type(text)
    except ValueError:
        kind = "an integer" if FLAGS[name].type is int else "a number"
        raise RequestError(f"{name} must be {kind}, not {text!r}") from None

"""Makes grammars in Lark's notation for the library: from choices, tags, and the older EBNF."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from drut.constrain import gbnf, rules, schema, terminals
from drut.constrain.limits import MAX_BYTES, MAX_ENUM, MAX_REGEX_BYTES, MAX_RULES, check_nesting, check_text
from drut.errors import RequestError

JSON_BLOCK = re.compile(r"%json\s*(?=[{\[])")
# %ignore with a terminal that matches nothing makes the library search endlessly; %llguidance would set its options.
EBNF = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)  # a rule in GBNF
REFUSED = re.compile(r"%\s*(ignore|llguidance)\b")
HEATED = re.compile(r"^\s*\w+\[[^\]\n]*\btemperature\s*=", re.MULTILINE)  # a rule that sets a temperature
BLANK = re.compile(r"[^\n]")
TEXT = r"/(.|\n)*/"


@dataclass(frozen=True)
class Tag:
    """A tag: `begin`, a value that fits `schema` (prepared, a JSON text), then `end`."""

    begin: str
    schema: str
    end: str


def check_regex(pattern: str, name: str = "regex") -> None:
    """Raises RequestError if the expression is too long or nested too deeply."""
    check_text(name, pattern, MAX_REGEX_BYTES)
    check_nesting(name, pattern, quotes="")
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise RequestError(f"{name}: a backslash at the end escapes nothing")


def pattern(regex: str) -> str:
    """Returns a regular expression in Lark's slashes, with slashes inside escaped."""
    steps = re.sub(r"\\.|/", lambda step: "\\/" if step[0] == "/" else step[0], regex, flags=re.DOTALL)
    return f"/{steps}/".replace("\n", "\\n")


def of_choices(choices: Sequence[str]) -> str:
    """Returns the grammar of exactly one of these strings."""
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise RequestError("choice must be a list of strings")
    if len(choices) > MAX_ENUM:
        raise RequestError(f"choice: {len(choices)} strings; at most {MAX_ENUM} are allowed")
    for i, choice in enumerate(choices):
        check_text(f"choice[{i}]", choice, MAX_BYTES)
        if not choice:
            raise RequestError(f"choice[{i}] is empty")
    return "start: CHOICE\nCHOICE: " + " | ".join(map(quoted, dict.fromkeys(choices))) + "\n"


def of_tags(tags: Sequence[Tag], triggers: Sequence[str], *, required: bool = False, most: int | None = None) -> str:
    """Returns the grammar of free text in which each trigger opens one of the tags that begin with it.

    With `required` there is at least one tag, and no text around the tags; `most`: maximum of tags.
    """
    if not tags:
        raise RequestError("structural_tag: there are no tags")
    names = []
    rules = []
    for i, tag in enumerate(tags):
        trigger = next((t for t in triggers if t and tag.begin.startswith(t)), None)
        if trigger is None and not required:
            raise RequestError(f"structural_tag: no trigger is a beginning of {tag.begin[:60]!r}")
        names.append(f"tag_{i}")
        body = f"%json {tag.schema} {quoted(tag.end) if tag.end else ''}".rstrip()
        if required:
            rules.append(f"tag_{i}: {quoted(tag.begin)} {body}")
            continue
        assert trigger is not None
        rest = tag.begin[len(trigger) :]
        rules.append(f"open_{i}[lazy]: TEXT {quoted(trigger)}")
        rules.append(f"tag_{i}: open_{i} {quoted(rest) + ' ' if rest else ''}{body}")
    times = f"{{{int(required)},{most}}}" if most is not None else "+" if required else "*"
    end = "" if required else " TEXT"
    head = [f"start: ({' | '.join(names)}){times}{end}"]
    return "\n".join([*head, *rules, *([] if required else [f"TEXT: {TEXT}"]), ""])


def of_grammar(text: str, name: str = "grammar") -> str:
    """Returns a client's grammar, Lark or EBNF (`root ::= ...`), after checking it and preparing the schemas in it."""
    check_text(name, text, MAX_BYTES)
    if EBNF.search(text):
        return gbnf.to_lark(text, name)
    outside, at, made = [], 0, []
    while (block := JSON_BLOCK.search(text, at)) is not None:
        try:
            value, end = json.JSONDecoder().raw_decode(text, block.end())
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{name}: %json is not followed by valid JSON: {error}") from None
        outside += [text[at : block.end()], BLANK.sub(" ", text[block.end() : end])]
        ready, lines = schema.prepared(value, f"{name}: %json"), text.count("\n", block.end(), end)
        made += [text[at : block.end()], ready[0], "\n" * lines, ready[1:]]  # keeps line numbers of library errors
        at = end
    outside.append(text[at:])
    plain = "".join(outside)  # has the length of the text
    if refused := REFUSED.search(plain):
        raise RequestError(f"{name}: %{refused[1]} is not supported")
    if HEATED.search(plain):
        raise RequestError(f"{name}: a rule's temperature is not supported; set the request's temperature")
    if plain.count(":") > MAX_RULES:
        raise RequestError(f"{name}: more than {MAX_RULES} rules")
    check_nesting(name, plain, quotes="\"/")
    rules.check(plain, name)
    terminals.check(plain, name)
    return "".join([*made, text[at:]])


def quoted(text: str) -> str:
    """Returns a literal. The library's lexer accepts DEL only if it is escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

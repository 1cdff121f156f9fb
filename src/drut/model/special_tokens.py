"""Keeps text of messages that spells a special token ordinary text, so that only the template writes special tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Literal

from drut.errors import RequestError
from drut.model.template.templates import ChatTemplates
from drut.model.tokenizer import Tokenizer

SpecialTokens = Literal["text", "parse"]  # what text of messages that spells a special token becomes
# Printable characters that templates neither change nor write: hexagrams, then syllables of Yi.
SIGNS = "".join(map(chr, (*range(0x4DC0, 0x4E00), *range(0xA000, 0xA48D))))
MAX_DEPTH = 64  # levels of a trie; the rest of a longer text is one level more
_SPELLED_SIGN = re.compile(r"[\u4dc0-\u4dff\ua000-\ua48c]|\\u(?:4d[c-f][0-9a-f]|a[0-4][0-9a-f]{2})", re.IGNORECASE)


class SpecialTokenEscaper:
    """The special tokens of a model, and the character of each that is escaped in messages: its first that is no space.

    A special token in the rendered prompt then has this character from the template. What the template does to a
    message, such as removing a part, cannot make a special token of its text. The template still finds the texts that
    it looks for, such as `</think>`, unless they begin like a special token.
    """

    def __init__(self, tokenizer: Tokenizer, templates: ChatTemplates) -> None:
        self.tokenizer = tokenizer
        texts = [text for text in tokenizer.special_texts if text.strip()]
        self.keys = sorted({text.lstrip()[0] for text in texts})
        self.special = re.compile(f"({longest_of(texts)})")
        keys = "".join(map(re.escape, self.keys))
        fragments = {found.strip() for literal in templates.literals if keys
                     for found in re.findall(f"[{keys}][^{keys}]+", literal)}
        starts = [text.lstrip() for text in texts]
        known = {fragment for fragment in fragments if 1 < len(fragment) <= MAX_DEPTH
                 and not any(fragment.startswith(start) or start.startswith(fragment) for start in starts)}
        self.escaped = re.compile(f"{longest_of(known)}|[{keys}]") if keys else None

    def begin(self, *values: object) -> EscapedConversation:
        """Returns an escape for `values`, all of a conversation that is JSON data."""
        used: set[str] = set()
        for text in strings(values):
            if not text.isascii() or "\\" in text:
                used.update(found if len(found) == 1 else chr(int(found[2:], 16))
                            for found in _SPELLED_SIGN.findall(text))
        free = [sign for sign in SIGNS if sign not in used] if used else SIGNS
        if len(free) < len(self.keys):
            raise RequestError(f"messages use {len(used)} of the {len(SIGNS)} characters that can stand for "
                               f"{' '.join(self.keys)[:40]}: send them with special tokens parsed")
        return EscapedConversation(self, dict(zip(self.keys, free, strict=False)))


class EscapedConversation:
    """Escapes the texts of one conversation: each key has a sign that no text has. The length stays."""

    def __init__(self, model: SpecialTokenEscaper, signs: Mapping[str, str]) -> None:
        self._model, self._signs = model, signs
        self._keys = {ord(sign): key for key, sign in signs.items()}

    def hide(self, value: Any) -> Any:
        """Returns `value`, JSON data, with the strings in it escaped."""
        if isinstance(value, str):
            pattern, signs = self._model.escaped, self._signs
            return value if pattern is None else pattern.sub(lambda found: signs.get(found[0], found[0]), value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(member) for key, member in value.items()}
        return [self.hide(member) for member in value] if isinstance(value, list | tuple) else value

    def reveal(self, text: str) -> str:
        """Returns text of the template as it was without the escapes."""
        return self._as_json.sub(lambda found: self._keys[int(found[1], 16)], text).translate(self._keys)

    @cached_property
    def _as_json(self) -> re.Pattern[str]:
        """A pattern of the signs as JSON in ASCII writes them."""
        return re.compile(rf"\\u({'|'.join(f'{code:04x}' for code in self._keys) or '(?!)'})")

    def encode(self, rendered: str) -> list[int]:
        """Returns the ids of a rendered conversation. Parts between the template's special tokens are encoded as they
        would be alone, because special tokens split a text anyway."""
        tokenizer, parts = self._model.tokenizer, self._model.special.split(rendered)
        ids = encoded(tokenizer, self._runs(parts))
        most = len(parts) // 2 + len(tokenizer.rules.prefix)
        if tokenizer.normalizes_special and sum(i in tokenizer.special_ids for i in ids) > most:
            return encoded(tokenizer, self._runs(parts, strict=True))
        return ids

    def _runs(self, parts: Sequence[str], *, strict: bool = False) -> list[tuple[str, bool]]:
        """Returns runs of text, and for each whether special tokens in it are parsed: those in odd `parts` are. With
        `strict` they are not in any other part, even if it spells none."""
        runs = [("", True)]
        for number, part in enumerate(parts):
            shown = self.reveal(part)
            parsed = number % 2 == 1 or not shown or not (strict or self._model.special.search(shown))
            text, merges = runs[-1]
            if parsed and merges:
                runs[-1] = text + shown, True
            else:
                runs.append((shown, parsed))
        return runs


def encoded(tokenizer: Tokenizer, runs: Sequence[tuple[str, bool]]) -> list[int]:
    """Returns the ids of a chat prompt in runs of text; special tokens are parsed where the second member is true."""
    (first, _), *others = runs
    begun = tokenizer.encode_chat(first)
    if not first and others:
        (text, parsed), *others = others
        begun += tokenizer.encode(text, add_special=False, parse_special=parsed)
    return [*begun, *chain.from_iterable(tokenizer.encode_more(text, parse_special=parsed) for text, parsed in others)]


def strings(value: object) -> Iterator[str]:
    """Yields the strings in JSON data, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from strings(key)
            yield from strings(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from strings(member)


def longest_of(texts: Iterable[str]) -> str:
    """Returns a pattern that matches the longest of `texts`. It is a trie, since a model may have thousands."""
    root: dict[str, Any] = {}
    for text in sorted(texts, key=len, reverse=True):
        node = root
        for char in (*text[:MAX_DEPTH], *([text[MAX_DEPTH:]] if len(text) > MAX_DEPTH else ())):
            node = node.setdefault(char, {})
        node[""] = {}  # a text ends here

    def pattern(node: dict[str, Any]) -> str:
        more = [re.escape(char) + pattern(child) for char, child in node.items() if char]
        if not more:
            return ""
        return f"(?:{'|'.join(more)}){'?' if '' in node else ''}"

    return pattern(root) or "(?!)"

"""Escapes text of messages that spells a special token, so that only the chat template can write special tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from drut.model.tokenizer import Tokenizer

SIGN = "\ufdd0"  # a Unicode noncharacter: it begins an escape
FIRST = 0xF0000  # a private-use character: it follows SIGN and stands for the first escaped text


class SpecialTokenEscaper:
    """Hides text that spells a special token from the chat template and the tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts = [SIGN, *filter(None, tokenizer.special_texts)]
        self._signs = {text: SIGN + chr(FIRST + i) for i, text in enumerate(self._texts)}
        self._special = re.compile(f"({longest_of(self._texts[1:])})")
        self._any = re.compile(longest_of(self._texts))
        self._hidden = re.compile(f"{SIGN}([{chr(FIRST)}-{chr(FIRST + len(self._texts) - 1)}])")

    def hide(self, value: Any) -> Any:
        """Returns `value`, JSON data, with an escape for each special token in its strings."""
        if isinstance(value, str):
            return self._any.sub(lambda found: self._signs[found[0]], value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(member) for key, member in value.items()}
        return [self.hide(member) for member in value] if isinstance(value, list) else value

    def encode_chat(self, rendered: str) -> list[int]:
        """Returns the ids of a rendered conversation, with escaped text as ordinary text. The parts around it tokenize
        as they would alone, since special tokens split a text anyway."""
        if SIGN not in rendered:
            return self._tokenizer.encode_chat(rendered)
        runs: list[tuple[str, bool]] = [("", True)]  # text, and whether its special tokens are parsed
        for part in self._special.split(rendered):
            counts = SIGN not in part
            text, counted = runs[-1]
            if counts and counted:
                runs[-1] = text + part, True
            else:
                runs.append((self._shown(part), counts))
        (first, _), *others = runs
        begun = self._tokenizer.encode_chat(first)
        if not first and others:
            (text, counts), *others = others
            begun += self._tokenizer.encode(text, add_special=False, parse_special=counts)
        return [*begun, *chain.from_iterable(
            self._tokenizer.encode_more(text, parse_special=counts) for text, counts in others)]

    def _shown(self, text: str) -> str:
        return self._hidden.sub(lambda found: self._texts[ord(found[1]) - FIRST], text)


def longest_of(texts: Iterable[str]) -> str:
    """Returns a pattern that matches the longest of `texts`. It is a trie, since a model may have thousands."""
    root: dict[str, Any] = {}
    for text in texts:
        node = root
        for char in text:
            node = node.setdefault(char, {})
        node[""] = {}  # a text ends here

    def pattern(node: dict[str, Any]) -> str:
        more = [re.escape(char) + pattern(child) for char, child in node.items() if char]
        if not more:
            return ""
        return f"(?:{'|'.join(more)}){'?' if '' in node else ''}"

    return pattern(root) or "(?!)"

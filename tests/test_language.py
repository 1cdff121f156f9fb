"""The language of sources and documentation: no word of a banned list, and one class for one class name.

The words describe data and machines as people who talk, which hides the field's terms: use reports, states, returns, is
given; if; next to; continues; frees.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORDS = ("told", "tells", "said", "whoever", "whom", "nobody", "beside", "gives way", "goes on", "lets go")
BANNED = re.compile("(?<![A-Za-z])(?:" + "|".join(WORDS).replace(" ", r"\s+") + ")(?![A-Za-z])", re.IGNORECASE)
FOLDERS = {"src": (".py",), "csrc": (".h", ".cpp"), "docs": (".md",), "deploy": ("", ".md", ".service")}
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")


def texts() -> Iterator[Path]:
    for folder, endings in FOLDERS.items():
        yield from (p for p in sorted((ROOT / folder).rglob("*")) if p.is_file() and p.suffix in endings)
    yield from (ROOT / page for page in PAGES)


def room(path: Path) -> str:
    """The folder of a file, at most three names deep."""
    return "/".join(path.relative_to(ROOT).parts[:-1][:3])


def offences(text: str) -> list[str]:
    """The banned words in a text with their line numbers."""
    return [f"{text.count(chr(10), 0, found.start()) + 1}: {found[0]}" for found in BANNED.finditer(text)]


@pytest.mark.parametrize("folder", sorted({room(path) for path in texts()}))
def test_no_banned_word(folder: str) -> None:
    names = {str(path.relative_to(ROOT)): path for path in texts() if room(path) == folder}
    found = {name: offences(path.read_text()) for name, path in names.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("text", [
    "It told them.", "self._told = 1", "def beside(): ...", "Nobody waits", "a key goes\n    on"])
def test_the_ban_sees(text: str) -> None:
    assert offences(text)


@pytest.mark.parametrize("text", ["besides", "retold", "aforesaid"])
def test_the_ban_passes(text: str) -> None:
    assert not offences(text)


def test_a_class_name_is_defined_once() -> None:
    trees = (ast.parse(path.read_text()) for path in (ROOT / "src").rglob("*.py"))
    counts = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in counts.items() if count > 1] == []

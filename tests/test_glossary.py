"""What the documentation names exists: all that the last column of docs/glossary.md names, paths of sources and
imports of the other pages."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "glossary.md"
BASES = ("src/drut", ".", "csrc", "src", "src/drut/bench/engines")  # what a path is relative to
CODE = re.compile(r"`([^`]+)`")


def rows() -> list[list[str]]:
    """The cells of each row of the page's tables, without headings."""
    cells = [[cell.strip() for cell in line.split("|")] for line in PAGE.read_text().splitlines() if "|" in line]
    return [row for row in cells if row[0] != "term" and not set(row[0]) <= {"-"}]


def names() -> list[str]:
    return sorted({name for row in rows() for name in CODE.findall(row[-1])})


@cache
def classes() -> dict[str, set[str]]:
    """The members of every class in the sources, by its name: fields, properties, methods and attributes of `self`."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                members = found.setdefault(node.name, set())
                for inner in ast.walk(node):
                    match inner:
                        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                            members.add(name)
                        case ast.AnnAssign(target=ast.Name(id=name)):
                            members.add(name)
                        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                            members.add(name)
    return found


@cache
def sources() -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))


def exists(name: str) -> bool:
    """Whether the tree has `name`: a command, a flag, a path, a class or a member of one."""
    if name.startswith("drut "):
        return (ROOT / "src/drut/cli" / f"{name.split()[1]}.py").is_file()
    if name.startswith("--"):
        return re.search(rf"^    {name[2:].replace('-', '_')}: .*= setting\(", sources(), re.MULTILINE) is not None
    if "/" in name:
        return any((ROOT / base / name).exists() for base in BASES)
    owner, _, member = name.partition(".")
    return owner in classes() and (not member or member in classes()[owner])


@pytest.mark.parametrize("name", names())
def test_the_last_column_names_what_exists(name: str) -> None:
    assert exists(name)


def test_a_term_has_one_row() -> None:
    terms = [row[0] for row in rows()]
    assert len(terms) >= 60
    assert len(set(terms)) == len(terms)
    assert all(len(row) == 4 and all(row) for row in rows())


PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
SOURCE = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*/[a-z_0-9]+\.(?:py|h|cpp))[`: ]")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_sources_that_exist(page: Path) -> None:
    text = page.read_text()
    assert [name for name in SOURCE.findall(text) if not exists(name)] == []
    for module, names in re.findall(r"from (drut[\w.]*) import ([\w, ]+)", text):
        loaded = importlib.import_module(module)
        assert [name for name in names.split(", ") if not hasattr(loaded, name)] == []


@pytest.mark.parametrize("name", [
    "engine/nowhere.py", "NoSuchClass", "Request.no_such_member", "--no-such-flag", "drut nothing"])
def test_a_name_that_is_gone_is_seen(name: str) -> None:
    assert not exists(name)

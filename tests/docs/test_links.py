"""Links of the pages lead to files and headings that exist, and every page can be reached from the index."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "deploy").glob("*.md"),
                ROOT / "benchmarks" / "README.md"])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def prose(path: Path) -> str:
    """The text of a page without its blocks of code."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4,}(?![-*\d]).*$", "", text, flags=re.MULTILINE)


@cache
def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(path), flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found


def broken(path: Path, text: str) -> list[str]:
    """The links in `text`, a page at `path`, that lead nowhere."""
    lost = []
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(link)
    return lost


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(path: Path) -> None:
    assert broken(path, prose(path)) == []


@pytest.mark.parametrize("link", ["docs/nowhere.md", "docs/http.md#nothing", "#nothing"])
def test_a_broken_link_is_found(link: str) -> None:
    assert broken(ROOT / "README.md", f"[text]({link})") == [link]


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}
    assert [path.name for path in (ROOT / "docs").glob("*.md") if path != index and path not in linked] == []

"""The documentation in total: its number of words, and its blocks of Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.pages import output

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAX_WORDS = 20_000


def words(path: Path) -> int:
    """Those with a letter or a digit: the bars and dashes of tables are none."""
    return sum(any(c.isalnum() for c in word) for word in path.read_text().split())


def test_the_documentation_stays_short() -> None:
    counts = {str(path.relative_to(ROOT)): words(path) for path in PAGES}
    assert sum(counts.values()) <= MAX_WORDS, counts


BLOCKS = [(path.name, block) for path in PAGES
          for block in re.findall(r"^```python\n(.*?)^```$", path.read_text(), flags=re.DOTALL | re.MULTILINE)]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=lambda value: value if value.endswith(".md") else "")
def test_python_compiles(page: str, block: str) -> None:
    ast.parse(block, page)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("block", [block for page, block in BLOCKS if page == "python.md"], ids=lambda b: b[:20])
def test_python_of_its_page_runs(block: str, tmp_path: Path) -> None:
    assert output(block, tmp_path, "python")

"""docs/reference.md is what the parsers say, and names the variables that the sources read."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from tests.docs.reference import PAGE, page, variables

NOT_OURS = {"DRUT_ROWS"}  # of the tests


def test_the_page_is_what_the_script_writes() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.docs.reference"


def test_every_variable_is_listed_and_read() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    read = set(re.findall(r"""["'](DRUT_[A-Z_]+)["']""", sources))
    listed = {name for name in variables() if name.startswith("DRUT_")}
    assert read - NOT_OURS == listed

"""The page of comparisons."""

from __future__ import annotations

import pytest
from benchmarks.peers.serving import __main__ as comparison


@pytest.mark.parametrize(("page", "shown"), [
    ("/somewhere/else/build/peers/x/bin/python /a/b.c/src/drut/w.py", "build/peers/x/bin/python src/drut/w.py"),
    (f"{comparison.ROOT}/benchmarks/x", "benchmarks/x"), ("a=/elsewhere/build/compare/models/m.gguf",
                                                          "a=build/compare/models/m.gguf"),
    ("http://127.0.0.1:8000/v1/src/drut/", "http://127.0.0.1:8000/v1/src/drut/"), ("its build/peers/ here",) * 2,
    (f"X={comparison.home()}/bench", "X=$DRUT_HOME/bench"),
])
def test_no_path_of_a_machine_is_shown(page: str, shown: str) -> None:
    assert comparison._without_paths(page) == shown

"""The page of formats holds every encoding there is, and matches the code."""

from __future__ import annotations

import pytest

from drut.formats.encoding import ENCODINGS, NVFP4, encoding
from drut.kernels.native import library

needs_native = pytest.mark.skipif(library.load() is None, reason="the native library is not built")


@needs_native
def test_every_encoding_has_a_row() -> None:
    from benchmarks.engine.formats import ROWS

    named = {row.encoding for row in ROWS}
    assert named >= ENCODINGS.keys() | {NVFP4.name}
    assert {encoding(name).bits for name in named - ENCODINGS.keys()} == {4, 8}


@needs_native
def test_the_page_is_what_the_script_writes() -> None:
    import json

    from benchmarks.engine.formats import BEGIN, END, FIGURES, PAGE, section

    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown == section(json.loads(FIGURES.read_text()))


@needs_native
def test_a_figure_that_was_not_measured_is_a_dash() -> None:
    from benchmarks.engine.formats import section

    lines = [line for line in section({}).splitlines() if line.startswith("Q4_0 |")]
    assert lines == ["Q4_0 | 0.5625 | – | – | –"]

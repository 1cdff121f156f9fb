from __future__ import annotations

import pytest

from drut.bench.compare.cells import PRESETS, parse_cells, seed_of
from drut.bench.compare.schema import Cell
from drut.errors import RequestError


def test_cells_may_stand_in_one_text_or_in_several() -> None:
    want = [Cell("chat@8", PRESETS["chat"], concurrency=8),
            Cell("long-prompt@rate=0.5", PRESETS["long-prompt"], rate=0.5)]
    assert parse_cells(["chat@8,long-prompt@rate=0.5"]) == want
    assert parse_cells(["chat@8", "long-prompt@rate=0.5"]) == want


def test_a_workload_with_options_is_no_preset_and_keeps_its_commas() -> None:
    first, second = parse_cells(["synthetic:input=8,output=4@2,chat:max_tokens=9@1"])
    assert (first.workload, first.concurrency) == ("synthetic:input=8,output=4", 2)
    assert (second.workload, second.concurrency) == ("chat:max_tokens=9", 1)


@pytest.mark.parametrize(("text", "words"), [
    ("", "expected WORKLOAD@USERS"), ("chat", "expected WORKLOAD@USERS"), ("chat@", "expected"), ("@3", "expected"),
    ("chat@0", "at least one user"), ("chat@rate=0", "positive number"), ("chat@rate=nan", "positive number"),
    ("chat@rate=x", "positive number"), ("nope@3", "unknown workload 'nope'"), ("synthetic:color=3@1", "no option"),
    ("chat@8,chat@8", "given twice"), ("chat@8 and more", "expected"), ("chat@8,", None),
])
def test_what_makes_no_sense_is_named(text: str, words: str | None) -> None:
    if words is None:
        assert len(parse_cells([text])) == 1
        return
    with pytest.raises(RequestError, match=words):
        parse_cells([text])


def test_none_is_too_few() -> None:
    with pytest.raises(RequestError, match="no cell"):
        parse_cells([])


def test_seeds_differ_by_all_that_must_not_share_prompts() -> None:
    seeds = {seed_of(s, r, c) for s in (0, 1, 7) for r in (0, 1, 2, 255, 256, 257, 512, 999)
             for c in ("chat@8", "chat@1", "long-prompt@8")}
    assert len(seeds) == 3 * 8 * 3
    assert max(seed_of((1 << 20) - 1, 999, "x"), 1) < 1 << 63

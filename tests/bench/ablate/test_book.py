from __future__ import annotations

import csv
from pathlib import Path

import pytest

from drut.bench.ablate.book import Book, empty, read
from drut.bench.ablate.document import document
from drut.bench.compare.schema import Contestant
from drut.errors import DrutError, RequestError
from tests.bench.ablate.blocks import block, recipe

SETTINGS = {"duration_s": 5.0, "seed": 0}


def filled(folder: Path, rounds: int = 3) -> Book:
    book = Book(folder, empty("m", SETTINGS))
    book.add(recipe())
    for r in range(rounds):
        for side, value in (("on", 200.0), ("off", 100.0)):
            book.block(recipe(), block(r, side, output_tokens_per_s=value + r))
    return book


def test_all_is_in_the_folder_after_each_block(tmp_path: Path) -> None:
    book = filled(tmp_path)
    kept = read(tmp_path / "ablation.json")
    assert kept == book.ablation
    assert [effect.verdict for effect in kept.effects] == ["helps"]
    assert kept.techniques[0].shows.startswith("With fast, output is 201 tokens/s on and 101 off")
    assert [cell.name for cell in kept.cells] == ["fast", "slow"]
    assert kept.environment["cpus"]
    rows = list(csv.DictReader((tmp_path / "ablation.csv").open()))
    assert [(row["cell"], row["verdict"], row["rounds"]) for row in rows] == [("fast", "helps", "3")]
    assert kept.techniques[0].shows in (tmp_path / "summary.md").read_text()


def test_it_is_gone_on_with_what_is_missing(tmp_path: Path) -> None:
    assert len(Book(tmp_path, empty("m", SETTINGS)).missing(recipe(), 2)) == 8
    filled(tmp_path)
    book = Book.resumed(tmp_path, "m", SETTINGS)
    assert {turn.cell for turn in book.missing(recipe(), 3)} == {"slow"}
    assert [(t.round, t.cell, t.contestant) for t in book.missing(recipe(), 4) if t.cell == "fast"] == [
        (3, "fast", "cache/on"), (3, "fast", "cache/off")]


def test_both_sides_of_a_void_block_are_measured_again(tmp_path: Path) -> None:
    book = filled(tmp_path)
    book.block(recipe(), block(1, "on", valid=False))
    assert len(book.ablation.blocks) == 6
    assert [(t.round, t.contestant) for t in book.missing(recipe(), 3) if t.cell == "fast"] == [
        (1, "cache/off"), (1, "cache/on")]


def test_what_was_measured_in_another_way_is_not_gone_on_with(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(RequestError, match=r"measured with duration_s 5\.0, not 9"):
        Book.resumed(tmp_path, "m", {**SETTINGS, "duration_s": 9})
    with pytest.raises(RequestError, match="measured with model m, not other"):
        Book.resumed(tmp_path, "other", SETTINGS)
    with pytest.raises(RequestError, match="cache was measured with other flags: --cache"):
        Book.resumed(tmp_path, "m", SETTINGS).add(recipe(on=("--other",)))


@pytest.mark.parametrize(("text", "words"), [("{", "not an ablation"), ('{"schema": "x"}', "of the schema 'x'"),
                                            ('{"schema": "drut.ablation/1"}', "not an ablation")])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "ablation.json").write_text(text)
    with pytest.raises(DrutError, match=words):
        Book.resumed(tmp_path, "m", SETTINGS)


def test_of_a_server_the_last_word_counts(tmp_path: Path) -> None:
    book = filled(tmp_path)
    book.record_outcome(Contestant("cache/on", "mock", "Mock", "failed", "it fell"))
    assert "cache/on: failed. it fell" in (tmp_path / "summary.md").read_text()
    book.record_outcome(Contestant("cache/on", "mock", "Mock", "measured"))
    assert len(book.ablation.contestants) == 1
    assert "went wrong" not in (tmp_path / "summary.md").read_text()


def test_the_page_states_how_it_was_made_and_what_is_missing(tmp_path: Path) -> None:
    book = Book(tmp_path, empty("m", SETTINGS))
    book.place(recipe())
    page = document(book.ablation, "drut bench ablate")
    assert "Nothing is measured yet." in page
    assert "- A cache: not measured" in page
    page = document(filled(tmp_path).ablation, "drut bench ablate", "abc1234")
    assert ", commit abc1234, with m, 3 rounds. Later changes of the code are not in these figures." in page
    assert "`drut bench ablate` measures again" in page
    assert "| **1.99** (1.97–2.01) | helps |" in page

"""The records agree with the server whose flags they are, and with the guide they are to be."""

from __future__ import annotations

import argparse

import pytest

from drut.bench.ablate.recipe import AblationRecipe, Side
from drut.bench.ablate.techniques import TECHNIQUES, chosen
from drut.bench.result.figures import FIGURES
from drut.bench.workloads.registry import parse
from drut.cli import serve
from drut.config import from_flags
from drut.errors import RequestError
from drut.formats.encode import ENCODERS


def settings(side: Side) -> object:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return from_flags(parser.parse_args(["model", *side.flags])), side.weights


@pytest.mark.parametrize("recipe", TECHNIQUES.values(), ids=TECHNIQUES)
def test_a_record_switches_what_the_server_has(recipe: AblationRecipe) -> None:
    assert settings(recipe.on) != settings(recipe.off)
    assert {recipe.on.weights, recipe.off.weights} <= {"", *ENCODERS}
    for trial in recipe.trials:
        parse(trial.cell.workload)
        assert trial.judged.keys() <= FIGURES.keys()


def test_each_technique_should_help_somewhere_and_not_everywhere() -> None:
    for recipe in TECHNIQUES.values():
        expected = [e for trial in recipe.trials for e in trial.judged.values()]
        assert "helps" in expected
        assert set(expected) != {"helps"} or recipe.name in ("threads", "weights-8"), recipe.name


def test_cells_of_one_name_are_one_cell() -> None:
    cells = {trial.cell for recipe in TECHNIQUES.values() for trial in recipe.trials}
    assert len({cell.name for cell in cells}) == len(cells)


def test_techniques_are_chosen_by_name() -> None:
    assert chosen(None) == list(TECHNIQUES.values())
    assert [recipe.name for recipe in chosen("overlap, paging")] == ["overlap", "paging"]
    with pytest.raises(RequestError, match=r"unknown technique 'magic'; techniques are paging"):
        chosen("paging,magic")
    with pytest.raises(RequestError, match="paging is given twice"):
        chosen("paging,paging")

"""Schemas made at random, and every pair of keywords: what is made fits, what fits is accepted, or a path is named."""

from __future__ import annotations

import pytest

from tests.constrain.random_schemas import Tally, judge, pairs, random_schemas, walker_of
from tests.constrain.schema_maker import URIS
from tests.constrain.walking import Walker


def test_three_hundred_schemas_of_all_drafts(walker: Walker) -> None:
    tally = Tally()
    for i, (draft, schema) in enumerate(random_schemas(300, seed=1)):
        judge(walker, schema, draft, i, tally)
    assert tally.wrong == []
    assert tally.counts["taken"] > 150
    assert tally.counts["walks"] > 400
    assert tally.counts["instances"] > 400


@pytest.mark.slow
@pytest.mark.parametrize("draft", URIS)
def test_every_pair_of_keywords(walker: Walker, draft: int) -> None:
    tally = Tally()
    for i, schema in enumerate(pairs(draft, seed=1)):
        judge(walker, schema, draft, i, tally)
    assert tally.wrong == []
    assert tally.counts["taken"] > tally.counts["schemas"] / 2
    assert tally.counts["walks"] > 300


@pytest.mark.model
def test_a_vocabulary_of_whole_words() -> None:
    tally = Tally()
    with walker_of("smollm2-135m-instruct") as words:
        for i, (draft, schema) in enumerate(random_schemas(40, seed=2)):
            judge(words, schema, draft, i, tally)
    assert tally.wrong == []
    assert tally.counts["walks"] > 40

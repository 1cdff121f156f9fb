"""A server that speculates: the same replies, with counts of drafts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.rig import Running, serving, until
from tests.server.test_usage import counts

ASK = {"prompt": "abcabcabc", "max_tokens": 60, "temperature": 0, "ignore_eos": True, "timings": True}
PREFIX = "vllm:spec_decode_num_"
SPECULATES = {"speculate": "ngram:min=1,adaptive=0"}


@pytest.fixture(scope="module")
def drafting(model_path: Path) -> Iterator[Running]:
    with serving(model_path, engine=SPECULATES) as running:
        yield running


def test_replies_are_the_same_and_count_their_drafts(server: Running, drafting: Running) -> None:
    plain, reply = (each.post("/v1/completions", ASK).json for each in (server, drafting))
    assert reply["choices"] == plain["choices"]
    assert "draft_n" not in plain["timings"]
    assert 0 < reply["timings"]["draft_n_accepted"] <= reply["timings"]["draft_n"]


def test_a_request_can_decline(drafting: Running) -> None:
    asked, declined = (drafting.post("/v1/completions", {**ASK, "speculation": wanted}).json
                       for wanted in (True, False))
    assert declined["choices"] == asked["choices"]
    assert "draft_n" not in declined["timings"]
    assert drafting.post("/v1/completions", {**ASK, "speculation": "no"}).error["param"] == "speculation"


def test_metrics_add_up(model_path: Path) -> None:
    """Once the engine has reported its counts."""
    with serving(model_path, engine=SPECULATES) as running:
        made = [running.post("/v1/completions", ASK).json["timings"] for _ in range(2)]
        drafted, accepted = (sum(timings[name] for timings in made) for name in ("draft_n", "draft_n_accepted"))
        until(lambda: counts(running).get(f"{PREFIX}draft_tokens_total") == drafted)
        found = counts(running)
    assert found[f"{PREFIX}accepted_tokens_total"] == accepted
    assert found[f"{PREFIX}accepted_tokens_per_pos_total"] == accepted
    assert 0 < found[f"{PREFIX}drafts_total"] <= drafted

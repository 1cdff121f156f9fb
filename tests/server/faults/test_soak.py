"""A short soak; `.ci/run` makes it longer and `make soak` long."""

from __future__ import annotations

import os

import pytest

from tests.server.faults.soak import MIN_S, Soak, soak
from tests.server.rig import Reply

SECONDS = float(os.environ.get("DRUT_SOAK_SECONDS", "8"))


@pytest.mark.serial
@pytest.mark.slow
def test_a_mix_of_everything() -> None:
    mix = soak(SECONDS, seed=3, engine="process")
    print(mix)
    assert not mix.findings, "\n".join(mix.findings)
    assert mix.counts["hung up"] > 0
    assert mix.counts["answers"] + mix.counts["streams"] > 0


def made() -> Soak:
    class Nobody:
        url = "http://localhost:1"

    return Soak(Nobody())  # type: ignore[arg-type]


def test_growth_is_seen_and_a_step_is_not() -> None:
    mix = made()
    mix.samples = [(t, 100 + t * 2 / 60) for t in range(0, 300, 2)]
    assert mix.slope == pytest.approx(2)
    mix.samples = [(t, 100 + (t > 30) * 5 + t % 6 * 0.1) for t in range(0, 300, 2)]
    assert abs(mix.slope) < 0.5


def test_growth_is_judged_where_it_can_be() -> None:
    mix = made()
    assert not mix.judges_growth(1800)
    mix._warm = True
    assert mix.judges_growth(1800)
    assert mix.judges_growth(MIN_S)
    assert not mix.judges_growth(MIN_S - 1)


@pytest.mark.parametrize(("marker", "prompt_tokens", "finding"), [
    ("<M00000001>", 11, ""), ("<M00000002>", 11, "another's answer"),
    ("<M00000001><M00000002>", 11, "another's marker"),
    ("<M00000001>", 12, "counts"),
])  # fmt: skip
def test_what_belongs_to_another_is_found(marker: str, prompt_tokens: int, finding: str) -> None:
    mix = made()
    body = {"prompt": "<M00000001>", "n": 1, "max_tokens": 1, "stream": False}
    raw = (f'{{"choices":[{{"index":0,"text":"{marker}a","token_ids":[97],"logprobs":null,"finish_reason":"length"}}],'
           f'"usage":{{"prompt_tokens":{prompt_tokens}}}}}')
    mix._checked(body, Reply(200, {}, raw.encode()))
    assert (finding in "".join(mix.findings)) if finding else not mix.findings

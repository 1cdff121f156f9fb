"""llama.cpp's timings of a reply, from the records of its prompts."""

from __future__ import annotations

import pytest

from drut.server.admission import RequestRecord
from drut.server.openai.render.timings import timings


def record(choices: int, tokens: int, *, cached: int = 0) -> RequestRecord:
    """Of 10 tokens of prompt, computed in half a second; then two seconds to the last token."""
    return RequestRecord("r", "", 0, choices, 0.0, admitted=0.0, first_token=0.5, last_token=2.5, finished=2.6,
                         prompt_tokens=10, cached_tokens=cached, completion_tokens=tokens)


def test_the_first_token_of_a_choice_comes_with_its_prompt() -> None:
    for records, behind in (([record(1, 16)], 15), ([record(2, 16)], 14), ([record(1, 8), record(1, 8)], 14),
                            ([record(1, 1)], 0), ([record(2, 1)], 0)):
        made = timings(records)
        assert made.predicted_n == sum(r.completion_tokens for r in records)
        assert made.predicted_ms == 2000
        assert made.predicted_per_second == behind / 2
        assert made.predicted_per_token_ms == (2000 / behind if behind else 0)


def test_tokens_in_the_cache_took_no_time() -> None:
    made = timings([record(1, 4, cached=8)])
    assert (made.cache_n, made.prompt_n, made.prompt_ms) == (8, 2, 500)
    assert (made.prompt_per_token_ms, made.prompt_per_second) == (250, pytest.approx(4))


def test_what_never_ran_has_zeros() -> None:
    made = timings([RequestRecord("r", "", 0, 1, 0.0)])
    assert (made.predicted_per_second, made.prompt_per_second, made.predicted_ms) == (0, 0, 0)

"""Prompt tokens beside decoding streams: as many as the measured steps allow, never none."""

from __future__ import annotations

import pytest

from drut.engine.pacer import LEAST, STALL, Pacer


def test_before_anything_is_known_a_few() -> None:
    pacer = Pacer()
    assert pacer.prompt_tokens(512) == LEAST
    assert pacer.prompt_tokens(1) == 1
    pacer.learn(4, 0, 0.01)
    assert pacer.prompt_tokens(512) == LEAST


@pytest.mark.parametrize("token_s", [1e-5, 1e-4, 1e-3, 1e-1])
def test_a_mixed_step_takes_at_most_so_many_times_a_plain_one(token_s: float) -> None:
    pacer, decode_s = Pacer(), 0.02
    pacer.learn(8, 0, decode_s)
    pacer.learn(0, 100, 100 * token_s)
    tokens = pacer.prompt_tokens(512)
    assert LEAST <= tokens <= 512
    assert decode_s + tokens * token_s <= STALL * decode_s + 1e-9 or tokens == LEAST
    assert decode_s + (tokens + 1) * token_s > STALL * decode_s - 1e-9 or tokens == 512


def test_mixed_steps_teach_what_a_prompt_token_costs() -> None:
    pacer = Pacer()
    pacer.learn(8, 0, 0.02)
    for _ in range(60):
        pacer.learn(8, 50, 0.02 + 50 * 0.0005)
    assert pacer.prompt_tokens(512) == pytest.approx((STALL - 1) * 0.02 / 0.0005, abs=1)


def test_a_step_faster_than_decoding_teaches_nothing_wrong() -> None:
    pacer = Pacer()
    pacer.learn(8, 0, 0.02)
    pacer.learn(8, 50, 0.01)
    assert pacer.prompt_tokens(512) == LEAST

"""Prompts beside decoding streams: as much as the measured steps allow, never none for long."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from drut.engine.pacer import FLOAT_MAC, LEAST, PLAIN_EVERY, STALL, Pacer, attention_depth
from drut.formats.encoding import encoding
from drut.kernels.kv import KvLayout
from drut.kernels.ops import Attention, Buffer, Project
from drut.kernels.plan import Plan, Recorder


def test_before_anything_is_known_none_then_a_few() -> None:
    pacer = Pacer()
    assert pacer.room(4) == 0
    pacer.learn(4, 0, 0.01)
    assert pacer.room(4) == LEAST


@pytest.mark.parametrize("depth", [100.0, 1000.0, math.inf])
@pytest.mark.parametrize("start", [0, 17, 5000])
def test_tokens_are_the_most_within_an_effort(depth: float, start: int) -> None:
    pacer = Pacer(depth)
    for effort in (0.5, 1.0, 3.7, 40.0, 1234.5):
        n = pacer.tokens(start, effort)
        assert pacer.effort(start, n) <= effort + 1e-6
        assert pacer.effort(start, n + 1) > effort - 1e-6
    assert pacer.tokens(start, 0.0) == 0
    assert pacer.tokens(start, -1.0) == 0


def test_effort_is_the_sum_over_tokens_and_grows_with_position() -> None:
    pacer = Pacer(depth=50.0)
    assert pacer.effort(10, 7) == pytest.approx(sum(pacer.effort(10 + i, 1) for i in range(7)))
    assert pacer.effort(0, 1) == 1
    assert pacer.effort(50, 1) == 2
    assert Pacer().effort(1000, 3) == 3


@pytest.mark.parametrize("effort_s", [1e-5, 1e-4, 1e-3, 1e-1])
def test_a_mixed_step_takes_at_most_so_many_times_a_plain_one(effort_s: float) -> None:
    pacer, decode_s = Pacer(), 0.02
    pacer.learn(8, 0, decode_s)
    pacer.learn(0, 100, decode_s + 100 * effort_s)
    room = pacer.room(8)
    assert decode_s + room * effort_s == pytest.approx(STALL * decode_s) or room == LEAST
    assert room >= LEAST


def test_mixed_steps_teach_what_a_prompt_token_costs() -> None:
    pacer = Pacer()
    pacer.learn(8, 0, 0.02)
    for _ in range(60):
        pacer.learn(8, 50, 0.02 + 50 * 0.0005)
    assert pacer.room(8) == pytest.approx((STALL - 1) * 0.02 / 0.0005, rel=0.01)


def test_decoding_is_known_by_the_number_of_streams() -> None:
    pacer = Pacer()
    pacer.learn(1, 0, 0.01)
    pacer.learn(32, 0, 0.04)
    pacer.learn(0, 100, 0.11)
    one, many = pacer.room(1), pacer.room(33)
    assert many == pytest.approx(4 * one)
    assert pacer.room(2) == one
    assert pacer.room(20) == many


def test_every_so_often_a_step_has_no_prompts() -> None:
    """Else what decoding costs would be known from before the prompts came only."""
    pacer = Pacer()
    pacer.learn(8, 0, 0.02)
    rooms = [pacer.room(8) for _ in range(3 * (PLAIN_EVERY + 1))]
    assert rooms.count(0.0) == 3
    assert rooms[PLAIN_EVERY] == 0


def test_what_any_step_costs_is_no_prompt_tokens_cost() -> None:
    """Small prompts alone would else look many times as dear as they are."""
    pacer = Pacer()
    pacer.learn(1, 0, 0.05)
    for _ in range(20):
        pacer.learn(0, 20, 0.05 + 20 * 0.001)
    assert pacer.room(1) == pytest.approx((STALL - 1) * 0.05 / 0.001)


def test_a_step_faster_than_decoding_tells_what_decoding_costs() -> None:
    """One slow plain step, the first of all, must not stand for long."""
    pacer = Pacer()
    pacer.learn(8, 0, 1.0)
    for _ in range(30):
        pacer.learn(8, 10, 0.02)
    assert pacer._plain(8) == pytest.approx(0.02, rel=0.2)


@dataclass
class Kept:
    """As much of a packed matrix as its cost depends on."""

    n: int
    k: int
    nbytes = 0
    encoding = encoding("Q8_0")


def plan_of(*windows: int) -> Plan:
    """A matrix of 64 by 64 in int8, and attention of 2 heads of 16 in a layer for each window."""
    q, x, recorder = Buffer("q", 32), Buffer("x", 64), Recorder()
    recorder.add(Project(0, x, Kept(64, 64), x))
    for layer, window in enumerate(windows):
        recorder.add(Attention(layer=layer, q=q, out=q, heads=2, kv=KvLayout("bf16", 1, 1, 16), scale=1.0,
                               window=window))
    return recorder.finish()


def test_the_depth_of_attention_is_that_of_layers_without_a_window() -> None:
    matrices, position = 64 * 64, FLOAT_MAC * 2 * 2 * 16
    assert attention_depth(plan_of(0)) == matrices / position
    assert attention_depth(plan_of(0, 0)) == matrices / (2 * position)
    assert attention_depth(plan_of(0, 100)) == (matrices + 100 * position) / position
    assert attention_depth(plan_of(100)) == math.inf

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.ablate.document import document
from drut.bench.ablate.effects import effects
from drut.bench.ablate.schema import Ablation, Effect, Technique
from drut.bench.ablate.words import SHORT, as_expected, found, shows
from drut.bench.compare.schema import Block
from tests.bench.ablate.blocks import block, recipe


def outputs(on: list[float], off: list[float]) -> list[Block]:
    return [block(r, side, output_tokens_per_s=value) for side, values in (("on", on), ("off", off))
            for r, value in enumerate(values)]


def test_a_steady_gain_is_told_with_its_size() -> None:
    (effect,) = effects(recipe(), outputs([200, 210, 190, 205], [100, 104, 96, 102]))
    assert effect.ratio == pytest.approx(2, rel=0.02)
    assert effect.low < effect.ratio < effect.high
    assert effect.low > 1.9
    assert (effect.on, effect.off, effect.rounds, effect.verdict) == (202.5, 101, 4, "helps")


def test_less_is_better_where_a_figure_is_a_time() -> None:
    blocks = [block(r, side, "slow", tpot_ms_p50=value + r / 10) for side, value in (("on", 20.0), ("off", 10.0))
              for r in range(3)]
    (effect,) = effects(recipe(), blocks)
    assert (effect.figure, effect.expected, effect.verdict) == ("tpot_ms_p50", "no effect", "costs")


def test_what_varies_more_than_it_differs_has_no_effect() -> None:
    (effect,) = effects(recipe(), outputs([100, 150, 90, 120], [110, 100, 120, 95]))
    assert effect.verdict == "none"
    assert effect.low < 1 < effect.high


def test_two_rounds_are_too_few_for_a_verdict_and_one_for_a_ratio() -> None:
    (effect,) = effects(recipe(), outputs([200, 201], [100, 100]))
    assert (effect.rounds, effect.verdict) == (2, "none")
    assert effects(recipe(), outputs([200], [100])) == []


def test_void_blocks_and_figures_that_fell_on_failures_do_not_count() -> None:
    good = outputs([200, 202, 199], [100, 100, 101])
    bad = [block(3, "on", valid=False, output_tokens_per_s=1.0), block(3, "off", output_tokens_per_s=100.0),
           block(4, "on", output_tokens_per_s=None), block(4, "off", output_tokens_per_s=100.0),
           block(5, "on", output_tokens_per_s="inf"), block(5, "off", output_tokens_per_s=100.0),
           block(6, "on", name="other", output_tokens_per_s=9.0), block(6, "off", output_tokens_per_s=100.0)]
    assert effects(recipe(), good + bad) == effects(recipe(), good)


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=6), st.floats(0.2, 5))
def test_what_slows_the_machine_in_a_round_goes_out_of_the_ratio(speeds: list[float], gain: float) -> None:
    (effect,) = effects(recipe(), outputs([gain * 100 * s for s in speeds], [100 * s for s in speeds]))
    assert effect.ratio == pytest.approx(gain)
    assert effect.high == pytest.approx(effect.low)


def test_the_paragraph_is_made_of_the_figures() -> None:
    blocks = [*outputs([200, 202, 198], [100, 100, 100]), block(3, "on", valid=False)]
    blocks += [block(r, side, "slow", tpot_ms_p50=10.0 + r * (side == "on")) for side in ("on", "off")
               for r in range(3)]
    assert shows(effects(recipe(), blocks), blocks) == (
        "With fast, output is 200 tokens/s on and 100 off, 2.00 times (1.95 to 2.05, 3 rounds): it helps, as it "
        "should. With slow, the median of TPOT is 11 ms on and 10 off, 1.10 times (0.87 to 1.38, 3 rounds): no effect "
        "is visible, and none was expected. 1 of 13 blocks are void and do not count (the client sent late).")


@pytest.mark.parametrize(("on", "off", "verdict"), [
    ([100, 160, 60, 130], [100, 100, 100, 100], "uncertain"),  # it may be half as much again, or half
    ([101, 99, 102, 98], [100, 100, 100, 100], "little"), ([101, 99], [100, 100], "uncertain"),
    ([150, 151, 149, 150], [100, 100, 100, 100], "helps"), ([60, 61, 59, 60], [100, 100, 100, 100], "costs")])
def test_that_there_is_no_effect_is_told_of_narrow_intervals_alone(
    on: list[float], off: list[float], verdict: str
) -> None:
    (effect,) = effects(recipe(), outputs(on, off))
    assert found(effect) == verdict
    row = next(line for line in document(_ablation(effect), "x").splitlines() if line.startswith("| A cache"))
    assert {"uncertain": "open"}.get(verdict, SHORT[found(effect)]) in row
    assert ("(expected: helps)" in row) == (verdict in ("little", "costs"))
    expected = {"helps": "as expected", "uncertain": ""}.get(verdict, "not as expected")
    assert as_expected(effect) == expected
    nothing = msgspec.structs.replace(effect, expected="no effect")
    assert as_expected(nothing) == {"little": "as expected", "uncertain": ""}.get(verdict, "not as expected")


def test_works_without_an_expected_effect_are_summed_up() -> None:
    (effect,) = effects(recipe(), outputs([60, 61, 59, 60], [100, 100, 100, 100]))
    nothing = msgspec.structs.replace(effect, expected="no effect")
    page = document(_ablation(nothing), "x")
    assert "| A cache" not in page
    assert "0 of 1 figures show none" in page
    assert "A cache costs: Output with fast **0.60**" in page


def _ablation(effect: Effect) -> Ablation:
    technique = Technique("cache", "A cache", "It keeps.", [], [])
    return Ablation(schema="", settings={}, environment={}, model="m", techniques=[technique], cells=[], contestants=[],
                    blocks=[], effects=[effect])


def test_what_was_not_measured_is_not_told_of() -> None:
    assert shows([], []) == "Not measured."
    void = [block(0, "on", valid=False), block(0, "off", output_tokens_per_s=1.0)]
    assert shows([], void) == ("No result: two rounds of both sides are needed, and 1 of 2 blocks are void "
                               "(the client sent late).")

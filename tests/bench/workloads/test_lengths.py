"""Distributions of lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.workloads.lengths import Lengths
from drut.errors import RequestError


def drawn(text, n=4000):
    lengths, rng = Lengths.parse(text, "input"), np.random.default_rng(3)
    return np.array([lengths.draw(rng) for _ in range(n)])


def test_constant():
    assert set(drawn("7", 10)) == {7}


def test_uniform_reaches_both_ends():
    values = drawn("uniform:3:6")
    assert set(values) == {3, 4, 5, 6}
    assert abs(values.mean() - 4.5) < 0.1


@pytest.mark.parametrize("kind", ["normal", "lognormal", "gamma"])
def test_mean_and_deviation_are_those_of_the_length(kind):
    values = drawn(f"{kind}:800:200")
    assert values.mean() == pytest.approx(800, rel=0.02)  # four standard errors are 1.6 %
    assert values.std() == pytest.approx(200, rel=0.08)


def test_skew_distinguishes_the_shapes():
    def skew(values):
        return (((values - values.mean()) / values.std()) ** 3).mean()

    assert abs(skew(drawn("normal:800:200"))) < 0.2
    assert 0.3 < skew(drawn("gamma:800:200")) < 0.7  # 2 sd / mean
    assert 0.55 < skew(drawn("lognormal:800:200")) < 1.1  # 0.77


def test_what_is_outside_is_drawn_again_and_not_piled_up_at_the_edge():
    values = drawn("normal:100:50:90:120")
    assert values.min() >= 90
    assert values.max() <= 120
    assert (values == 90).mean() < 0.06
    assert (values == 120).mean() < 0.06  # clipping would put a third here


@pytest.mark.parametrize(("text", "words"), [
    ("", "expected N"), ("0", "from 1 to"), ("-5", "from 1 to"), ("1.5", "expected N"), ("99999999", "from 1 to"),
    ("uniform:5", "expected N"), ("uniform:9:3", "the lower first"), ("uniform:0:3", "from 1 to"),
    ("normal:nan:1", "mean and SD"), ("normal:inf:1", "mean and SD"), ("gamma:100:0", "mean and SD"),
    ("lognormal:-1:3", "mean and SD"), ("normal:100:1:5000:6000", "almost nothing"), ("zipf:1:2", "expected N"),
    ("normal:1:2:3", "expected N"), ("normal:1e400:2", "mean and SD"), ("uniform:" + "9" * 5000 + ":1", "expected N"),
])
def test_bad_ones_are_refused(text, words):
    with pytest.raises(RequestError, match=words) as error:
        Lengths.parse(text, "input")
    assert "input" in str(error.value)


@given(st.text(max_size=30))
def test_any_text_parses_or_is_refused(text):
    try:
        lengths = Lengths.parse(text, "input")
    except RequestError:
        return
    assert lengths.low <= lengths.draw(np.random.default_rng(0)) <= lengths.high

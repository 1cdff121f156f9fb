"""Figures of hand-made logits, intervals of known samples, and the gate over them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from drut.bench.workloads.gsm8k import ANSWERS, number_in
from drut.bench.workloads.packed import read_jsonl
from drut.errors import RequestError
from drut.quality.estimate import Estimate, mean, proportion
from drut.quality.gate import GateLimits, judge
from drut.quality.likelihood import Likelihood, TextWindow, cut, measure, summary
from drut.quality.tasks import TaskScore


def test_a_window_by_hand() -> None:
    p, q = np.array([[0.5, 0.25, 0.25]] * 3), np.array([[0.25, 0.5, 0.25]] * 3)
    window = measure(np.log(q).astype(np.float32), np.log(p).astype(np.float32) + 7, [2, 0, 1])
    assert window.nll == pytest.approx(-(math.log(0.25) + math.log(0.5)) / 2, rel=1e-6)
    assert window.reference_nll == pytest.approx(-(math.log(0.5) + math.log(0.25)) / 2, rel=1e-6)
    assert window.divergence == pytest.approx(0.5 * math.log(2) + 0.25 * math.log(0.5), rel=1e-6)
    assert window.agreement == 0.0


def test_a_model_beside_itself() -> None:
    logits = np.random.default_rng(1).standard_normal((9, 40)).astype(np.float32)
    window = measure(logits, logits.copy(), list(range(9)))
    assert (window.divergence, window.agreement) == (0.0, 1.0)
    assert window.nll == window.reference_nll


def test_other_vocabularies_are_refused() -> None:
    with pytest.raises(RequestError, match="vocabulary of 5, the model of 4"):
        measure(np.zeros((3, 4), np.float32), np.zeros((3, 5), np.float32), [1, 2, 3])


def test_windows_are_compared_in_pairs() -> None:
    """What both share, here an easy and a hard text in turns, does not widen the interval of the increase."""
    windows = [TextWindow(1.0 + (i % 2) + 0.01, 1.0 + (i % 2), 0.02, 0.9) for i in range(10)]
    found = summary(windows, 64)
    assert found.increase.value == pytest.approx(math.exp(0.01) - 1)
    assert found.increase.high - found.increase.low < 1e-9
    assert found.perplexity.high / found.perplexity.low > 1.5
    assert summary([TextWindow(1.0)] * 3, 8) == Likelihood(3, 8, Estimate(math.e, None, None))


def test_intervals() -> None:
    assert mean([1.0, 2.0]) == Estimate(1.5, None, None)
    five = mean([1.0, 2.0, 3.0, 4.0, 5.0])
    assert five.high - 3 == pytest.approx(2.776 * math.sqrt(2.5 / 5), rel=0.01)  # the 0.975 quantile, 4 degrees
    half = proportion(5, 10)
    assert (half.low, half.high) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))
    assert proportion(0, 20).low == 0.0 < proportion(0, 20).high < 0.2


def test_intervals_hold_what_they_say() -> None:
    rng, hits = np.random.default_rng(3), 0
    for _ in range(2000):
        e = mean(rng.normal(2.0, 1.0, 8).tolist())
        hits += e.low <= 2.0 <= e.high
    assert 0.935 < hits / 2000 < 0.965


def test_the_gate() -> None:
    likelihood = Likelihood(windows=5, tokens=8, perplexity=Estimate(9.0, None, None),
                            reference_perplexity=Estimate(9.0, None, None), increase=Estimate(0.02, 0.015, 0.025),
                            divergence=Estimate(0.01, 0.005, 0.015), agreement=Estimate(0.9, 0.85, 0.95))
    score = TaskScore("gsm8k", 10, Estimate(0.5, 0.2, 0.8), 0)
    verdicts = judge(GateLimits(0.01, 0.012, 0.8, 0.6), likelihood, score)
    assert [(v.figure, v.held, v.sure) for v in verdicts] == [
        ("increase", False, True), ("divergence", True, False), ("agreement", True, True), ("score", False, False)]
    assert judge(GateLimits(), likelihood, score) == []
    assert judge(GateLimits(increase=0.1), None, score) == []


def test_a_text_too_short() -> None:
    assert cut(list(range(10)), 2, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(RequestError, match="10 tokens; 3 windows of 4 need 12"):
        cut(list(range(10)), 3, 4)


@pytest.mark.parametrize(("text", "number"), [
    ("So 3 + 4 = 7.\nThe answer is 7.", 7), ("The answer is: $1,234.50 in 2 days", 1234.5), ("it costs 12 dollars", 12),
    ("The answer is 5. No, the answer is **-6**", -6), ("no idea", None), ("", None)])
def test_the_number_of_an_answer(text: str, number: float | None) -> None:
    assert number_in(text) == number


def test_answers_belong_to_their_questions() -> None:
    questions = read_jsonl("gsm8k")
    assert (ANSWERS[0], "Janet’s ducks" in questions[0]) == (18, True)
    assert (ANSWERS[17], "Jill gets paid" in questions[17]) == (57500, True)
    assert (ANSWERS[57], "A wooden bridge" in questions[57]) == (83, True)
